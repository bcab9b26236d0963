//! Which workers say nothing although they run, or can't be told apart: what the condition `WorkersResponsive` is made of.
//! Pure.

use std::collections::BTreeSet;

use super::status::Problem;
use crate::api::condition::reason;
use crate::reaper::host::HostKey;
use crate::reaper::judge::Judgement;

/// Workers that run and say nothing, or that nobody can tell apart. The texts hold no number that grows.
#[must_use]
pub fn unresponsive(judgement: &Judgement) -> Option<Problem> {
    let problem = |reason: &str, message: String| Some(Problem { reason: reason.into(), message, stalled: false });
    if judgement.held_many_at_once {
        return problem(
            reason::MANY_SILENT,
            "more than a third of the workers fell silent at once; they are held for one more timeout, since Redis or the network may be at fault".into(),
        );
    }
    let silent: BTreeSet<&str> = judgement
        .silent_though_running()
        .filter_map(|(pool, _)| judgement.pods_of.get(pool))
        .flatten()
        .map(|pod| &**pod)
        .collect();
    if !silent.is_empty() {
        let names: Vec<&str> = silent.iter().take(5).copied().collect();
        return problem(
            reason::SILENT_WORKERS,
            format!(
                "{} worker pods run, as their kubelet says, but send no heartbeat ({}): frozen, or cut off from Redis; their locks are kept",
                silent.len(),
                names.join(", ")
            ),
        );
    }
    let shared: Vec<&str> = judgement.shared_hosts.iter().take(5).map(HostKey::as_str).collect();
    if !shared.is_empty() {
        return problem(
            reason::SHARED_HOST_NAME,
            format!(
                "several workers report one host name ({}), so only silence can tell which of them died; give each pod a host name of its own",
                shared.join(", ")
            ),
        );
    }
    None
}
