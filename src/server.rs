//! The HTTP server for probes and metrics: `/healthz`, `/readyz`, `/metrics`.
//!
//! `/healthz` says that the process works; `/readyz` that it has seen the resources and the pods, so that it can judge.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// What `/readyz` needs before it says yes, in the order it is looked at.
pub type Readiness = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

#[derive(Clone)]
struct Shared {
    metrics: Arc<Metrics>,
    alive: Readiness,
    ready: Readiness,
}

/// Binds the address. Separate from [`serve`], so that an address in use ends the start and not the run.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Answers until `stop` is cancelled.
pub async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    alive: Readiness,
    ready: Readiness,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let app = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .with_state(Shared { metrics, alive, ready });
    axum::serve(listener, app).with_graceful_shutdown(async move { stop.cancelled().await }).await
}

fn answer(check: &Readiness) -> (StatusCode, String) {
    match check() {
        Ok(()) => (StatusCode::OK, "ok\n".into()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn healthz(State(shared): State<Shared>) -> impl IntoResponse {
    answer(&shared.alive)
}

async fn readyz(State(shared): State<Shared>) -> impl IntoResponse {
    answer(&shared.ready)
}

async fn metrics_text(State(shared): State<Shared>) -> impl IntoResponse {
    match shared.metrics.encode() {
        Ok(text) => (
            StatusCode::OK,
            [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")],
            text,
        ),
        Err(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            "metrics can't be written\n".into(),
        ),
    }
}
