//! Reads the answers of our scripts.

use crate::protocol::text;
use crate::redis::{Failure, Value};

/// One value of an answer, with the name of the script for errors.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) script: &'static str,
    pub(super) value: Value,
}

impl Reply {
    pub(super) fn new(script: &'static str, value: Value) -> Self {
        Self { script, value }
    }

    pub(super) fn unexpected(&self, wanted: &str) -> Failure {
        Failure::unexpected(format!("script {} answered something other than {wanted}", self.script))
    }

    /// The items of an array.
    pub(super) fn items(self) -> Result<std::vec::IntoIter<Value>, Failure> {
        match self.value {
            Value::Array(items) | Value::Set(items) => Ok(items.into_iter()),
            _ => Err(self.unexpected("a list")),
        }
    }

    /// The items of an array as answers of the same script.
    pub(super) fn parts(self) -> Result<impl ExactSizeIterator<Item = Self>, Failure> {
        let script = self.script;
        Ok(self.items()?.map(move |value| Self { script, value }))
    }

    /// A text, without a loss where it is none; `None` where it is absent.
    pub(super) fn text(&self) -> Result<Option<String>, Failure> {
        match &self.value {
            Value::BulkString(bytes) => Ok(Some(text::of_bytes(bytes))),
            Value::SimpleString(text) => Ok(Some(text.clone())),
            Value::Okay => Ok(Some("OK".to_owned())),
            Value::Int(number) => Ok(Some(number.to_string())),
            Value::Nil | Value::Boolean(false) => Ok(None),
            _ => Err(self.unexpected("a text")),
        }
    }

    /// A number; `None` where it is absent or none.
    pub(super) fn number(&self) -> Result<Option<i64>, Failure> {
        Ok(self.text()?.and_then(|text| text.parse().ok()))
    }

    /// A count that others add to: 0 where it is absent, and -1, which no count is in health, where Redis could not add
    /// to it.
    pub(super) fn tally(&self) -> Result<i64, Failure> {
        let Some(text) = self.text()? else { return Ok(0) };
        Ok(text.parse::<i64>().ok().filter(|number| number.to_string() == text).unwrap_or(-1))
    }

    /// A count that must be there.
    pub(super) fn count(&self) -> Result<u64, Failure> {
        match self.value {
            Value::Int(number) => Ok(number.max(0).unsigned_abs()),
            _ => Err(self.unexpected("a count")),
        }
    }

    /// Texts of a list.
    pub(super) fn texts(self) -> Result<Vec<String>, Failure> {
        self.parts()?.map(|part| Ok(part.text()?.unwrap_or_default())).collect()
    }

    /// Fields and values of a flat list, as Lua gives a hash.
    pub(super) fn pairs(self) -> Result<Vec<(String, String)>, Failure> {
        let mut texts = self.texts()?.into_iter();
        let mut pairs = Vec::with_capacity(texts.len() / 2);
        while let (Some(field), Some(value)) = (texts.next(), texts.next()) {
            pairs.push((field, value));
        }
        Ok(pairs)
    }
}
