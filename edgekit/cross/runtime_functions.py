"""The functions that a model's library may call by name on a device.

A device loads TVM's small runtime, a build all of TVM: a function of the build may be missing on
the device. This table lists what the small runtime of the pinned version registers;
`tests/integration/cross/test_runtime_functions.py` compares it with that library.
"""

from __future__ import annotations

_BUILTINS = """
    alloc_shape_heap alloc_storage alloc_tensor apply_presence_and_frequency_penalty
    apply_repetition_penalty apply_softmax_with_temperature attention_kv_cache_append
    attention_kv_cache_append_mla_kv attention_kv_cache_array_clear
    attention_kv_cache_array_popn attention_kv_cache_attention_with_fused_qkv
    attention_kv_cache_attention_with_shared_kv
    attention_kv_cache_commit_accepted_token_tree_nodes attention_kv_cache_create
    attention_kv_cache_cross_attention attention_kv_cache_debug_get_kv
    attention_kv_cache_debug_get_kv_mla attention_kv_cache_empty
    attention_kv_cache_enable_sliding_window_for_seq attention_kv_cache_export_page_group
    attention_kv_cache_finish_import attention_kv_cache_get_checkpoint_metadata
    attention_kv_cache_get_layout_hash attention_kv_cache_get_num_available_pages
    attention_kv_cache_get_query_positions attention_kv_cache_get_sequence_length
    attention_kv_cache_get_total_sequence_length attention_kv_cache_import_page_group
    attention_kv_cache_merge_attn_output_inplace attention_kv_cache_prepare_import
    attention_kv_cache_self_attention attention_kv_cache_update attention_kv_cache_view
    attention_kv_cache_window_override attention_kv_cache_window_override_with_sinks
    call_py_func call_tir_dyn check_func_info check_prim_value_info check_shape_info
    check_string_info check_tensor_info check_tuple_info clear_py_func_registry copy
    ensure_zero_offset get_py_func invoke_closure invoke_debug_func kv_cache_disagg_mark_send
    kv_cache_disagg_prepare_recv kv_state_add_sequence kv_state_begin_forward kv_state_clear
    kv_state_end_forward kv_state_fork_sequence kv_state_popn kv_state_remove_sequence
    make_closure make_prim_value make_shape make_tuple match_prim_value match_shape
    memory_manager.clear multinomial_from_uniform null_value paged_attention_kv_cache_create
    param_array_from_cache param_array_from_cache_by_name
    param_array_from_cache_by_name_unpacked param_module_from_cache
    param_module_from_cache_by_name read_if_cond register_py_func reshape rnn_state_create
    rnn_state_debug_get rnn_state_get rnn_state_set sample_top_p_from_logits
    sample_top_p_from_prob shape_of tensor_cache.clear tensor_cache.get tensor_cache.load
    tensor_cache.remove tensor_cache.update tensor_to_shape to_device tuple_getitem
    tuple_reset_item
"""

RUNTIME_FUNCTIONS = frozenset(f"vm.builtin.{name}" for name in _BUILTINS.split())
