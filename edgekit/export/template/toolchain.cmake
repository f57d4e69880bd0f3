# The compiler for {{board}}, as edgekit's toolchain profile {{toolchain}} has it.
{{toolchain_settings}}
