//! Names out of Redis as texts, without a loss: Redis takes any bytes, and a key must be found again by its name.
//!
//! Bytes that are no UTF-8 become characters of a private use plane, `U+10FF80` for byte 0x80 up to `U+10FFFF` for 0xff;
//! where these characters themselves stand in Redis, each of their bytes is written so. Every other text stays as it is.

/// Where byte 0 would be: bytes that are no UTF-8 are 0x80 and above.
const BASE: u32 = 0x10_ff00;

/// The text of a name in Redis.
#[must_use]
pub fn of_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if escaped(character).is_some() {
                let mut buffer = [0; 4];
                text.extend(character.encode_utf8(&mut buffer).bytes().filter_map(escape));
            } else {
                text.push(character);
            }
        }
        text.extend(chunk.invalid().iter().copied().filter_map(escape));
    }
    text
}

/// The name in Redis: [`of_bytes`] gives `text` for it again.
#[must_use]
pub fn to_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match escaped(character) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(character.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    bytes
}

fn escape(byte: u8) -> Option<char> {
    char::from_u32(BASE + u32::from(byte))
}

fn escaped(character: char) -> Option<u8> {
    u8::try_from(u32::from(character).checked_sub(BASE)?).ok().filter(|byte| *byte >= 0x80)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_name_is_lost(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(to_bytes(&of_bytes(&bytes)), bytes);
        }

        #[test]
        fn no_text_is_lost_either(text in "[a:é\u{10ff7f}-\u{10ffff}]{0,12}") {
            prop_assert_eq!(to_bytes(&of_bytes(text.as_bytes())), text.as_bytes());
        }

        #[test]
        fn plain_text_stays_as_it_is(text in "[ -~éß€😀]{0,40}") {
            prop_assert_eq!(of_bytes(text.as_bytes()), text.clone());
            prop_assert_eq!(to_bytes(&text), text.as_bytes());
        }
    }

    #[test]
    fn names_that_differ_have_texts_that_differ() {
        let names: [&[u8]; 4] = [b"\xff", b"\xfe", "\u{fffd}".as_bytes(), "\u{10ffff}".as_bytes()];
        let texts: std::collections::BTreeSet<String> = names.into_iter().map(of_bytes).collect();
        assert_eq!(texts.len(), names.len());
    }
}
