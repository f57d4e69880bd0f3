// Links the model's library, and lets the program find it where it lies now.
fn main() {
    let own = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let folder = std::path::Path::new(&own).join("../lib");
    let folder = folder.canonicalize().expect("the folder lib stands next to rust");
    println!("cargo:rustc-link-arg=-L{}", folder.display());
    println!("cargo:rustc-link-arg=-l:model.so");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
    println!("cargo:rerun-if-changed={}", folder.join("model.so").display());
}
