//! The times of [`decide_unknown`], and what proofs say. The rules of [`decide`] are tested over whole looks, in
//! `judge/tests`.

use super::*;
use crate::reaper::binding::Place;
use crate::reaper::container::End;

#[test]
fn an_id_without_a_heartbeat_waits_for_its_time() {
    let settings = Settings::default();
    let patient = Settings { heartbeat_timeout: Duration::from_secs(90), ..settings };
    let facts = |known_for: u64, pod_started_since: bool, reaped: bool, in_progress: u64| UnknownFacts {
        known_for: Duration::from_secs(known_for),
        pod_started_since,
        reaped,
        in_progress,
        listed: false,
    };
    let table = [
        (facts(11, false, false, 1), settings, None),
        (facts(12, false, false, 1), settings, Some("UnknownPool")),
        (facts(59, true, false, 1), settings, None),
        (facts(60, true, false, 1), settings, Some("UnknownPool")),
        (facts(89, true, false, 1), patient, None),
        (facts(90, true, false, 1), patient, Some("UnknownPool")),
        (facts(0, true, true, 0), settings, Some("ReapedBefore")),
        (facts(0, true, true, 1), settings, None),
        (facts(1, true, true, 1), settings, Some("ReapedBefore")),
    ];
    for (facts, settings, expected) in table {
        let name = match decide_unknown(&facts, &settings) {
            Verdict::Dead(proof) => Some(proof.name()),
            Verdict::Living | Verdict::Undecided(_) => None,
        };
        assert_eq!(name, expected, "{facts:?}");
    }
}

#[test]
fn every_proof_says_what_the_script_must_find_and_what_happened() {
    let place = Place {
        namespace: "payments".into(),
        pod: "mail-0".into(),
        pod_uid: "u".into(),
        container: "worker".into(),
        container_id: "containerd://a".into(),
    };
    let beat = Expect::Unmoved(EpochSeconds(7));
    let seconds = Duration::from_secs;
    let quiet = Quiet { silent_for: seconds(13), needed: seconds(12), since: Instant::now(), expect: beat };
    let host = HostKey::of("mail-0");
    let end = End { finished_at: None, reason: "Completed".into(), exit_code: None };
    let table = [
        (
            Proof::ContainerEnded { place: place.clone(), end },
            Expect::Anything,
            "container worker of pod mail-0 ended: Completed",
        ),
        (
            Proof::ContainerReplaced { place: place.clone() },
            Expect::Anything,
            "container worker of pod mail-0 was restarted",
        ),
        (
            Proof::PodEnded { place: place.clone(), reason: "Evicted".into() },
            Expect::Anything,
            "pod mail-0 was ended by its kubelet: Evicted",
        ),
        (
            Proof::NoBeatSinceEnd { place: place.clone(), quiet },
            beat,
            "container worker of pod mail-0 ended, and no heartbeat came for 13 s since",
        ),
        (
            Proof::Silent { why: WhyUnknown::PodOver, host: host.clone(), place: None, quiet },
            beat,
            "its pod was given up, but not by its kubelet, and host mail-0 was silent for 13 s",
        ),
        (
            Proof::SharedHostSilent { host: host.clone(), place: place.clone(), quiet },
            beat,
            "pod mail-0, one of several with host name mail-0, ended, and this worker was silent for 13 s",
        ),
        (
            Proof::Superseded { by: PoolId::from("new"), place, quiet },
            beat,
            "a newer process (new) runs in container worker of pod mail-0, and this one was silent for 13 s",
        ),
        (
            Proof::OutsiderSilent { host, quiet },
            beat,
            "host mail-0, which is no pod of this queue, was silent for 13 s",
        ),
        (
            Proof::UnknownPool { known_for: seconds(12), listed: true },
            Expect::Absent { listed: true },
            "it holds locks or jobs, but sent no heartbeat in 12 s",
        ),
        (
            Proof::ReapedBefore { expect: Expect::Absent { listed: false } },
            Expect::Absent { listed: false },
            "it was reaped before, and left something behind",
        ),
    ];
    for (proof, expect, sentence) in table {
        assert_eq!((proof.expect(), proof.describe().as_str()), (expect, sentence));
        assert_eq!(proof.is_certain(), expect == Expect::Anything);
    }
}
