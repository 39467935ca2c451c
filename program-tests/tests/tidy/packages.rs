//! House rules of the packages: each that is published says all that a registry asks, and brings its licences.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::demand_none;
use crate::source::workspace;

/// A package as `cargo metadata` describes it.
struct Package {
    name: String,
    folder: PathBuf,
    facts: Value,
}

/// The packages that are published: those that do not say `publish = false`.
fn published() -> Vec<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--offline", "--no-deps", "--format-version", "1"]).current_dir(workspace());
    let output = command.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages").iter();
    let published = packages.filter(|package| package["publish"].is_null()).map(|facts| {
        let manifest = Path::new(facts["manifest_path"].as_str().expect("a path"));
        Package {
            name: facts["name"].as_str().expect("a name").to_owned(),
            folder: manifest.parent().expect("a manifest lies in a folder").to_owned(),
            facts: facts.clone(),
        }
    });
    let published: Vec<_> = published.collect();
    assert!(published.iter().any(|package| package.name == "uruk"), "the facade is published");
    published
}

/// A registry shows these, and finds packages by them.
#[test]
fn published_packages_say_what_a_registry_asks() {
    const KEYWORDS_MAX: usize = 5;
    let mut findings = Vec::new();
    for Package { name, folder, facts } in published() {
        for field in ["description", "license", "documentation", "readme", "rust_version"] {
            if facts[field].as_str().is_none_or(str::is_empty) {
                findings.push(format!("{name}: no {field}"));
            }
        }
        for field in ["keywords", "categories"] {
            let count = facts[field].as_array().map_or(0, Vec::len);
            if !(1..=KEYWORDS_MAX).contains(&count) {
                findings.push(format!("{name}: {count} {field}"));
            }
        }
        if facts["readme"].as_str().is_some_and(|readme| !folder.join(readme).is_file()) {
            findings.push(format!("{name}: its readme is not there"));
        }
        if !facts["metadata"]["docs"]["rs"].is_object() {
            findings.push(format!("{name}: nothing for docs.rs"));
        }
    }
    demand_none(
        findings,
        "complete the package's Cargo.toml; `scripts/docs-rs.sh` reads what is for docs.rs",
    );
}

/// A package that is unpacked alone has the texts of its licences.
#[test]
fn published_packages_bring_their_licences() {
    let mut findings = Vec::new();
    for Package { name, folder, .. } in published() {
        for text in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let original = fs::read(workspace().join(text)).expect("the workspace has its licences");
            if fs::read(folder.join(text)).ok() != Some(original) {
                findings.push(format!("{name}: {text}"));
            }
        }
    }
    demand_none(findings, "link the text of the workspace into the package's folder");
}
