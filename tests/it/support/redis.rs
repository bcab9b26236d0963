//! A real redis-server for one test: on a free port of the loopback, in a folder of its own, ended by its pid.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use poolkeeper::redis::{Client, Endpoint};
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;

/// How long a test waits for anything at the most.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A running server; dropped, it is killed.
pub struct RedisServer {
    process: Child,
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    args: Vec<String>,
    dir: tempfile::TempDir,
}

impl RedisServer {
    /// Starts a server that keeps nothing on disk, and waits until it answers.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with more arguments, such as `["--maxmemory", "1mb"]`.
    pub async fn start_with(args: &[&str]) -> Self {
        let port = free_port();
        let dir = tempfile::tempdir().unwrap();
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let server = Self { process: spawn(port, &args, &dir), port, args, dir };
        server.wait_until_it_listens().await;
        server
    }

    /// Kills the process (`kill -9`).
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it again on the same port, empty.
    pub async fn restart(&mut self) {
        self.kill();
        self.process = spawn(self.port, &self.args, &self.dir);
        self.wait_until_it_listens().await;
    }

    /// Stops the process as it stands (SIGSTOP): its sockets stay open, nothing answers.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on (SIGCONT).
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::parse(&self.url()).unwrap()
    }

    /// poolkeeper's client for it.
    pub fn client(&self) -> Client {
        Client::new(self.endpoint())
    }

    /// A connection of another program.
    pub async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.url()).unwrap();
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
    }

    async fn wait_until_it_listens(&self) {
        eventually("redis-server listens", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_ok()
        })
        .await;
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(port: u16, args: &[String], dir: &tempfile::TempDir) -> Child {
    let mut command = Command::new("redis-server");
    if !args.iter().any(|arg| arg == "--port") {
        command.args(["--port", &port.to_string()]);
    }
    let port = port.to_string();
    let args = args.iter().map(|arg| if arg == "PORT" { &port } else { arg });
    command
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
        .arg(dir.path())
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server must be installed")
}

/// A port that nothing listens on right now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits for a condition, with a bound.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < give_up, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs one command, word by word, and converts its answer.
pub async fn run<T: FromRedisValue, W: AsRef<[u8]>>(
    connection: &mut MultiplexedConnection,
    words: impl IntoIterator<Item = W>,
) -> T {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word.as_ref());
    }
    command.query_async(connection).await.unwrap()
}

/// The same for a command written as one line; words are parted by spaces.
pub async fn line<T: FromRedisValue>(connection: &mut MultiplexedConnection, command: &str) -> T {
    run(connection, command.split_whitespace()).await
}
