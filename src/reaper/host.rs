//! Which host name the processes of a pod report in their heartbeats.
//!
//! Carries out "Host name: `spec.hostname` or the pod's name, cut at 63 characters, the whole domain name with
//! `setHostnameAsFQDN`, the node's with hostNetwork".
//!
//! Source: kubernetes `pkg/kubelet/kubelet_pods.go`, `GeneratePodHostNameAndDomain` and
//! `truncatePodHostnameIfNeeded`, and `pkg/kubelet/kuberuntime/kuberuntime_sandbox.go`.

use std::fmt;
use std::sync::Arc;

/// The longest host name that Linux takes, less its final zero.
const LONGEST_HOST_NAME: usize = 63;

/// A host name in the form in which pods and heartbeats can be compared: in lower case, and a pod's domain name cut
/// after `.svc`, since only the kubelet knows the cluster's domain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostKey(Arc<str>);

impl HostKey {
    /// The key of a host name that a heartbeat or a claim names.
    #[must_use]
    pub fn of(host: &str) -> Self {
        let lower = host.to_ascii_lowercase();
        match lower.find(".svc.") {
            Some(at) => Self(lower[..at + ".svc".len()].into()),
            None => Self(lower.into()),
        }
    }

    /// The key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What in a pod decides its processes' host name.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostInputs<'a> {
    /// `metadata.name`.
    pub pod: &'a str,
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `spec.hostname`.
    pub hostname: Option<&'a str>,
    /// `spec.hostnameOverride` (Kubernetes 1.34 and later); wins over all others.
    pub hostname_override: Option<&'a str>,
    /// `spec.subdomain`.
    pub subdomain: Option<&'a str>,
    /// `spec.setHostnameAsFQDN`.
    pub hostname_as_fqdn: bool,
    /// `spec.hostNetwork`.
    pub host_network: bool,
    /// `spec.nodeName`.
    pub node: Option<&'a str>,
}

/// The host names that the pod's processes may report: one, but two with hostNetwork, where the node's own name may be
/// its first label only; none while the node of such a pod is not known.
#[must_use]
pub fn reported_hosts(inputs: &HostInputs<'_>) -> Vec<HostKey> {
    if inputs.host_network {
        let Some(node) = inputs.node else { return Vec::new() };
        let mut hosts = vec![HostKey::of(node)];
        if let Some((label, _)) = node.split_once('.') {
            hosts.push(HostKey::of(label));
        }
        return hosts;
    }
    if let Some(name) = inputs.hostname_override.filter(|name| !name.is_empty()) {
        return vec![HostKey::of(cut(name))];
    }
    let own = inputs.hostname.filter(|name| !name.is_empty()).unwrap_or(inputs.pod);
    let host = cut(own);
    match inputs.subdomain.filter(|name| !name.is_empty()) {
        Some(subdomain) if inputs.hostname_as_fqdn => {
            vec![HostKey::of(&format!("{host}.{subdomain}.{}.svc.", inputs.namespace))]
        }
        _ => vec![HostKey::of(host)],
    }
}

/// Cut at 63 characters, with no `-` or `.` left at the end.
fn cut(name: &str) -> &str {
    match name.get(..LONGEST_HOST_NAME) {
        Some(head) if name.len() > LONGEST_HOST_NAME => head.trim_end_matches(['-', '.']),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "a123456789-123456789-123456789-123456789-123456789-123456789-123456789";

    #[test]
    fn a_pod_reports_what_its_kubelet_gave_it() {
        let plain = HostInputs { pod: "worker-0", namespace: "payments", ..HostInputs::default() };
        let table = [
            (plain, vec!["worker-0"]),
            (HostInputs { hostname: Some("mail"), ..plain }, vec!["mail"]),
            (HostInputs { hostname: Some(""), ..plain }, vec!["worker-0"]),
            (HostInputs { subdomain: Some("workers"), ..plain }, vec!["worker-0"]),
            (HostInputs { hostname_as_fqdn: true, ..plain }, vec!["worker-0"]),
            (
                HostInputs { subdomain: Some("workers"), hostname_as_fqdn: true, ..plain },
                vec!["worker-0.workers.payments.svc.cluster.local"],
            ),
            (
                HostInputs { subdomain: Some("workers"), hostname_as_fqdn: true, hostname: Some("w"), ..plain },
                vec!["w.workers.payments.svc.example.org"],
            ),
            (
                HostInputs { hostname_override: Some("db.example.org"), hostname: Some("x"), ..plain },
                vec!["db.example.org"],
            ),
            (HostInputs { pod: &LONG[..64], ..plain }, vec![&LONG[..63]]),
            // 61 characters and then "--x": cut at 63, and the hyphens go.
            (
                HostInputs { pod: "a123456789-123456789-123456789-123456789-123456789-1234567890--x", ..plain },
                vec!["a123456789-123456789-123456789-123456789-123456789-1234567890"],
            ),
            (HostInputs { host_network: true, ..plain }, vec![]),
            (HostInputs { host_network: true, node: Some("node-1"), hostname: Some("x"), ..plain }, vec!["node-1"]),
            (
                HostInputs { host_network: true, node: Some("ip-10-0-0-1.ec2.internal"), ..plain },
                vec!["ip-10-0-0-1.ec2.internal", "ip-10-0-0-1"],
            ),
        ];
        for (inputs, hosts) in table {
            let expected: Vec<HostKey> = hosts.into_iter().map(HostKey::of).collect();
            assert_eq!(reported_hosts(&inputs), expected, "{inputs:?}");
        }
    }

    #[test]
    fn a_domain_name_matches_whatever_the_cluster_domain() {
        assert_eq!(HostKey::of("w.s.ns.svc.cluster.local"), HostKey::of("W.s.ns.svc.other"));
        assert_ne!(HostKey::of("w.s.ns.svc.cluster.local"), HostKey::of("w.s.other.svc.cluster.local"));
        assert_ne!(HostKey::of("w.s.ns.svc.cluster.local"), HostKey::of("w"));
    }
}
