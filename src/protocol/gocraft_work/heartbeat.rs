//! Reads a pool's heartbeat. Source: gocraft/work v0.5.1 `heartbeater.go`.

use crate::protocol::{EpochSeconds, Heartbeat};

/// A heartbeat out of its hash fields, in this order: `heartbeat_at`, `started_at`, `job_names`, `concurrency`, `host`,
/// `pid`. `None` when there is no beat, or its times are no numbers.
#[must_use]
pub fn parse(fields: [Option<String>; 6]) -> Option<Heartbeat> {
    let [heartbeat_at, started_at, job_names, concurrency, host, pid] = fields;
    Some(Heartbeat {
        heartbeat_at: EpochSeconds(heartbeat_at?.parse().ok()?),
        started_at: EpochSeconds(started_at?.parse().ok()?),
        job_names: job_names.unwrap_or_default().split(',').filter(|name| !name.is_empty()).map(Into::into).collect(),
        concurrency: concurrency.and_then(|text| text.parse().ok()).unwrap_or(0),
        host: host.unwrap_or_default().into(),
        pid: pid.unwrap_or_default().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(texts: [&str; 6]) -> [Option<String>; 6] {
        texts.map(|text| Some(text.to_owned()))
    }

    #[test]
    fn reads_what_the_library_writes() {
        let beat = parse(fields(["1774958400", "1774950000", "email,img", "10", "web-1", "1"])).unwrap();
        assert_eq!(beat.heartbeat_at, EpochSeconds(1_774_958_400));
        assert_eq!(beat.job_names, ["email".into(), "img".into()]);
        assert_eq!((beat.concurrency, &*beat.host, &*beat.pid), (10, "web-1", "1"));
    }

    #[test]
    fn a_pool_without_types_has_none_and_broken_times_are_no_beat() {
        assert!(parse(fields(["1", "1", "", "x", "", ""])).unwrap().job_names.is_empty());
        assert_eq!(parse(fields(["now", "1", "", "", "", ""])), None);
        assert_eq!(parse([const { None }; 6]), None);
    }
}
