// Compiles the C with the compiler that CC names, or the usual one of the target.
use std::{env, path::PathBuf, process::Command};

const FLAGS: &[&str] = &[{{flags}}];
const SOURCES: &[&str] = &[{{listed}}];

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?} failed");
}

fn main() {
    let folder = PathBuf::from(env::var("OUT_DIR").unwrap());
    let is_host = env::var("TARGET") == env::var("HOST");
    let usual = if is_host { "cc" } else { "{{compiler}}" };
    let compiler = env::var("CC").unwrap_or(usual.into());
    let archiver = env::var("AR").unwrap_or(if is_host { "ar" } else { "{{archiver}}" }.into());
    let mut sources: Vec<&str> = SOURCES.to_vec();
    if env::var("CARGO_FEATURE_REFERENCE").is_ok() {
        sources.push("tests/reference.c");
    }
    let mut objects = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let object = folder.join(format!("{index}.o"));
        let mut command = Command::new(&compiler);
        command.args(["-std=gnu99", "-O2", "-w", "-Isrc", "-Dmain={{name}}_reference", "-c", source]);
        if !is_host {
            command.args(FLAGS);
        }
        run(command.arg("-o").arg(&object));
        objects.push(object);
    }
    let library = folder.join("lib{{name}}.a");
    let _ = std::fs::remove_file(&library);
    run(Command::new(archiver).arg("crs").arg(&library).args(&objects));
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=static={{name}}");
    if is_host {
        println!("cargo:rustc-link-lib=m");
    }
    for name in ["src", "tests", "build.rs"] {
        println!("cargo:rerun-if-changed={name}");
    }
    for name in ["CC", "AR"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
}
