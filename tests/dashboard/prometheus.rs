//! The dashboard for Grafana, against a Prometheus that scrapes an engine.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;
use uruk::dashboard::DashboardOptions;

use crate::browser::say;
use crate::client::{PATIENCE, connect, rest};
use crate::metrics::{engine, work};

const PROGRAM: &str = "prometheus";
const TOKEN: &str = "correct horse battery";

/// A Prometheus that scrapes one address, with its data: both go with it.
struct Prometheus {
    process: Child,
    address: SocketAddr,
    folder: PathBuf,
}

impl Prometheus {
    /// One that listens, if the program is there. In CI it must be.
    fn start(target: SocketAddr) -> Option<Self> {
        if Command::new(PROGRAM)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_err()
        {
            assert!(std::env::var_os("CI").is_none(), "{PROGRAM} is missing: scripts/setup.sh installs it");
            say(&format!("skipped: {PROGRAM} is missing, and scripts/setup.sh installs it"));
            return None;
        }
        let folder = std::env::temp_dir().join(format!("uruk-prometheus-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary directory is writable");
        let settings = format!(
            "scrape_configs:\n  - job_name: uruk\n    scrape_interval: 100ms\n    scrape_timeout: 100ms\n    authorization: {{ credentials: \"{TOKEN}\" }}\n    \
             static_configs: [{{ targets: [\"{target}\"] }}]\n"
        );
        std::fs::write(folder.join("settings.yml"), settings).expect("the directory is writable");
        let mut command = Command::new(PROGRAM);
        command.arg(format!("--config.file={}", folder.join("settings.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.args(["--web.listen-address=127.0.0.1:0", "--log.level=info"]).stderr(Stdio::piped());
        let mut process = command.spawn().expect("it is there");
        let mut lines = BufReader::new(process.stderr.take().expect("it is a pipe")).lines();
        let listens = |line: &String| line.contains("\"Listening on\"");
        let line = lines.by_ref().map_while(Result::ok).find(listens).expect("it says where it listens");
        let address = line.rsplit("address=").next().and_then(|address| address.trim().parse().ok());
        // Read to the end, or it would stall.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Some(Self { process, address: address.unwrap_or_else(|| panic!("no address: {line}")), folder })
    }

    /// The values of an expression now; none while it is still starting.
    fn values(&self, expression: &str) -> Vec<f64> {
        let query: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let request = format!("GET /api/v1/query?query={query} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address);
        let answer = String::from_utf8(rest(connect(self.address, request.as_bytes()))).expect("it is text");
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        if answer.split(' ').nth(1) == Some("503") {
            return Vec::new();
        }
        let answer: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {answer}"));
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        let series = answer["data"]["result"].as_array().expect("a list");
        let value = |series: &Value| series["value"][1].as_str().and_then(|value| value.parse().ok());
        series.iter().map(|series| value(series).expect("a number")).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The expressions of all panels, as Grafana asks for them.
fn expressions() -> Vec<String> {
    let board: Value = serde_json::from_str(include_str!("../../docs/grafana.json")).expect("it is JSON");
    let panels = board["panels"].as_array().expect("a list").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().expect("a list"));
    let expression = |target: &Value| target["expr"].as_str().expect("a text").to_owned();
    targets
        .map(expression)
        .map(|text| text.replace("$job", "uruk").replace("$__rate_interval", "1m"))
        .collect()
}

/// A panel that asked for a metric of another name, or with another label, would stay empty, and none would notice.
#[test]
fn each_query_of_the_dashboard_for_grafana_has_a_value() {
    let jit = engine();
    let page = jit.dashboard(DashboardOptions::at("127.0.0.1:0").token(TOKEN)).expect("a port is free");
    let Some(prometheus) = Prometheus::start(page.local_addr()) else { return };
    let mut open = expressions();
    assert!(open.len() > 15, "{open:?}");
    let begun = Instant::now();
    // Rates need two scrapes, between which something happens.
    while !open.is_empty() {
        work(&jit);
        open.retain(|expression| {
            let values = prometheus.values(expression);
            values.is_empty() || values.iter().any(|value| !value.is_finite())
        });
        assert!(begun.elapsed() < PATIENCE, "these have no value: {open:#?}\n{}", jit.metrics().text());
    }
    assert_eq!(prometheus.values("uruk_pool_workers{job=\"uruk\"}"), [2.0]);
    assert!(prometheus.values("up{job=\"uruk\"}") == [1.0]);
    say(&format!("all queries have values after {:?}", begun.elapsed()));
}
