//! A namespace of its own for each test, on the cluster that the tier started.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use poolkeeper::api::crd;
use poolkeeper::api::job_queue::JobQueue;
use poolkeeper::api::status::JobQueueStatus;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The cluster's folder, as `hack/cluster/up` made it.
pub fn cluster_folder() -> PathBuf {
    let folder = std::env::var_os("POOLKEEPER_CLUSTER")
        .expect("this tier needs a cluster: run it by make test-api or make test-e2e");
    PathBuf::from(folder)
}

/// The cluster's kubeconfig.
pub fn kubeconfig() -> PathBuf {
    cluster_folder().join("kubeconfig")
}

/// A client for the cluster.
pub async fn client() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let read = Kubeconfig::read_from(kubeconfig()).expect("a kubeconfig");
    let config =
        Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.expect("a usable kubeconfig");
    Client::try_from(config).expect("a client")
}

/// Applies the definitions and waits until they are served.
pub async fn install_definitions(client: &Client) {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    for (_, definition) in crd::definitions() {
        let name = definition.name_any();
        api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&definition))
            .await
            .expect("the definition");
        wait_for("the definition to be served", Duration::from_secs(20), || async {
            let served = api.get(&name).await.ok()?.status?.conditions?;
            served.iter().any(|c| c.type_ == "Established" && c.status == "True").then_some(())
        })
        .await;
    }
}

/// A namespace that is deleted with everything in it.
pub struct TestNamespace {
    /// Its client.
    pub client: Client,
    /// Its name.
    pub name: String,
}

impl TestNamespace {
    /// Makes one; `stem` tells which test it is of.
    pub async fn new(stem: &str) -> Self {
        let client = client().await;
        install_definitions(&client).await;
        let api = Api::<Namespace>::all(client.clone());
        let wanted = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": format!("{stem}-")}});
        let made =
            api.create(&PostParams::default(), &serde_json::from_value(wanted).unwrap()).await.expect("a namespace");
        Self { client, name: made.name_any() }
    }

    /// The API of one kind in this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Applies a `JobQueue` with this spec.
    pub async fn job_queue(&self, name: &str, spec: Value) -> Result<JobQueue, kube::Error> {
        let object = json!({"apiVersion": "poolkeeper.dev/v1alpha1", "kind": "JobQueue", "metadata": {"name": name}, "spec": spec});
        self.api::<JobQueue>().patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await
    }

    /// Waits until the status of a `JobQueue` is as wanted.
    pub async fn status(&self, name: &str, what: &str, wanted: impl Fn(&JobQueueStatus) -> bool) -> JobQueueStatus {
        let api = self.api::<JobQueue>();
        let last = std::sync::Mutex::new(None);
        let found = wait_or(Duration::from_secs(40), || async {
            let status = api.get(name).await.ok()?.status?;
            *last.lock().unwrap() = Some(status.clone());
            wanted(&status).then_some(status)
        })
        .await;
        found.unwrap_or_else(|| {
            panic!("{name}: {what} did not come; the last status was {:#?}", last.into_inner().unwrap())
        })
    }

    /// Creates any object out of JSON.
    pub async fn create<K>(&self, object: Value) -> K
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + serde::Serialize,
    {
        self.api::<K>().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.expect("created")
    }

    /// Asks for the deletion of the namespace. Its content goes in the background.
    pub async fn delete(self) {
        let api = Api::<Namespace>::all(self.client.clone());
        api.delete(&self.name, &DeleteParams::default()).await.expect("the namespace goes");
    }
}

/// Whether a condition has a status, and which reason.
pub fn condition<'a>(status: &'a JobQueueStatus, type_: &str) -> (&'a str, &'a str) {
    status.conditions.iter().find(|c| c.type_ == type_).map_or(("", ""), |c| (c.status.as_str(), c.reason.as_str()))
}

/// Asks again and again, until there is an answer or the time is over.
pub async fn wait_or<T, F>(bound: Duration, mut ask: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = Option<T>>,
{
    let end = Instant::now() + bound;
    let mut ticks = tokio::time::interval(Duration::from_millis(25));
    loop {
        ticks.tick().await;
        if let Some(answer) = ask().await {
            return Some(answer);
        }
        if Instant::now() >= end {
            return None;
        }
    }
}

/// The same; what does not come fails the test.
pub async fn wait_for<T, F>(what: &str, bound: Duration, ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    wait_or(bound, ask).await.unwrap_or_else(|| panic!("waited {bound:?} in vain for {what}"))
}
