//! Who writes a cap, and when, by Redis's own clock.

use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use tokio_util::task::AbortOnDropHandle;

use super::{Stage, key};

/// One write of the cap.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Seconds of Redis's clock.
    pub at: f64,
    pub value: String,
    /// By a script, as only poolkeeper does; the workers' own scripts never write it.
    pub by_script: bool,
}

/// Watches the writes of one cap by MONITOR.
pub struct CapWatch {
    writes: Arc<Mutex<Vec<Write>>>,
    _task: AbortOnDropHandle<()>,
}

impl CapWatch {
    /// From now on; `job` is the job type.
    pub async fn start(stage: &Stage, job: &str) -> Self {
        let client = redis::Client::open(stage.url.as_str()).expect("a URL");
        let mut lines = client.get_async_monitor().await.expect("MONITOR").into_on_message::<String>();
        let key = format!("\"{}\"", key(&format!("jobs:{job}:max_concurrency")));
        let writes = Arc::<Mutex<Vec<Write>>>::default();
        let seen = writes.clone();
        let task = tokio::spawn(async move {
            while let Some(line) = lines.next().await {
                seen.lock().unwrap().extend(write(&line, &key));
            }
        });
        Self { writes, _task: AbortOnDropHandle::new(task) }
    }

    /// All writes until now.
    pub fn end(self) -> Vec<Write> {
        self.writes.lock().unwrap().clone()
    }
}

/// A line such as `1774958400.123456 [0 10.244.1.7:41234] "SET" "work:jobs:mail:max_concurrency" "4"`; of scripts, the
/// client is `lua`.
fn write(line: &str, key: &str) -> Option<Write> {
    let (at, rest) = line.split_once(" [")?;
    let (client, command) = rest.split_once("] ")?;
    let words: Vec<&str> = command.split(' ').collect();
    let [set, written, value] = words[..] else { return None };
    let is_it = set.eq_ignore_ascii_case("\"SET\"") && written == key;
    is_it.then(|| Write {
        at: at.parse().expect("seconds"),
        value: value.trim_matches('"').to_owned(),
        by_script: client.ends_with(" lua"),
    })
}
