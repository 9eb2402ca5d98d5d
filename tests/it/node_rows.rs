//! The regression lists of the small roles (node-and-health spec A4 and B7): each row, and the tests that prove it.
//!
//! The rows are proven beside the code, with a real driver's socket, HTTP and a played kubelet; those about the whole process in
//! `tests/process/beside.rs`.

use crate::rows::{Row, assert_proven, by_letter, rows};

/// livenessprobe's: number, what must hold, proof.
pub(crate) const LIVENESS: &[Row] = rows! {
    1, "a driver that is not ready": "l1_a_driver_that_is_not_ready_is_unhealthy_and_nothing_crashes";
    2, "a socket file that is gone": "l2_a_socket_file_that_is_removed_under_a_living_driver_is_unhealthy";
    3, "ten thousand checks":
        "l3_ten_thousand_checks_leave_no_connection_and_no_task", "l3_a_thousand_probes_leave_the_process_no_descriptor_and_no_thread_more";
    4, "no connection": "l4_a_driver_that_nobody_can_connect_to_is_unhealthy";
    5, "no driver at the start": "l5_the_port_is_open_before_the_driver_is_there_and_says_why";
    6, "a slow probe": "l6_a_probe_may_take_almost_as_long_as_its_limit";
    7, "a quiet log": "l7_only_a_change_of_the_answer_is_logged";
    8, "health and metrics on one listener": "n2_n21_l8_local_roles_alone_need_no_kubeconfig_and_open_no_connection_to_an_api";
    9, "each answer is of its moment": "l9_each_answer_is_of_its_own_moment";
    10, "checks beside each other": "l10_a_check_that_hangs_does_not_keep_another_from_its_answer";
    11, "other roles": "l11_what_happens_to_other_roles_does_not_change_the_answer_about_the_driver";
    12, "restarts of the driver": "l12_checks_survive_restarts_of_the_driver";
    13, "a reload":
        "l13_no_reload_closes_the_port_of_the_driver_s_probe", "l13_a_changed_section_is_taken_over_by_the_listener_that_is_there",
        "l13_another_address_needs_another_listener", "l13_the_page_beside_the_diagnostics_follows_its_section";
};

/// node-driver-registrar's.
pub(crate) const REGISTRAR: &[Row] = rows! {
    1, "a stale socket":
        "n1_n11_n20_n21_a_driver_is_registered_over_a_stale_socket_with_protocol_v1_and_without_a_cluster",
        "n1_n20_a_socket_takes_the_place_of_a_stale_one_with_its_mode_and_leaves_nothing_beside_it";
    2, "SIGTERM":
        "n2_the_socket_goes_with_the_daemon_and_the_kubelet_forgets_the_driver",
        "n2_n21_l8_local_roles_alone_need_no_kubeconfig_and_open_no_connection_to_an_api";
    3, "a file or directory in the way":
        "n3_a_file_in_the_way_is_a_fault_and_untouched", "n3_n6_files_in_the_way_and_missing_directories_are_seen_and_left_alone",
        "n3_n6_what_is_in_the_way_and_a_missing_directory_are_left_alone";
    4, "health asks the socket": "n4_health_asks_the_socket_itself";
    5, "no deadline ends the server": "n5_n8_a_driver_that_answers_slowly_is_registered_and_stays_so";
    6, "the directory is not created": "n6_a_missing_directory_is_not_made";
    7, "the right listener": "n7_health_is_answered_on_health_listen_alone";
    8, "a slow name": "n5_n8_a_driver_that_answers_slowly_is_registered_and_stays_so";
    9, "a quiet log": "n9_self_checks_are_silent_but_for_the_first_that_fails";
    10, "the old exec probe": "n10_an_exec_probe_of_the_registrar_goes_with_it_and_the_flag_says_so";
    11, "protocol v1": "n1_n11_n20_n21_a_driver_is_registered_over_a_stale_socket_with_protocol_v1_and_without_a_cluster";
    12, "a refusal heals with the driver":
        "n12_n19_a_refusal_is_visible_and_heals_with_the_driver",
        "n12_n19_a_refusal_is_repeated_with_growing_pauses_unless_the_kubelet_asks_again_itself";
    13, "two instances in a roll-out":
        "n13_in_a_roll_out_the_file_of_the_new_instance_stays", "n13_the_socket_of_another_instance_is_not_removed";
    14, "a file that another process removes":
        "n14_a_file_that_another_process_removes_is_announced_again",
        "n14_a_file_that_has_gone_is_announced_again_and_another_instance_is_not_fought";
    15, "a kubelet's restart":
        "n15_a_kubelet_that_restarts_is_answered_without_a_write", "n15_a_kubelet_that_asks_again_registers_again_without_a_write";
    16, "a driver's restart":
        "n16_a_driver_that_restarts_alone_is_not_announced_again",
        "n16_a_silent_driver_stays_announced_unless_the_configuration_says_for_how_long";
    17, "a node's reboot":
        "n17_n18_nothing_is_announced_before_the_driver_answers_whatever_is_there",
        "n17_n18_nothing_is_announced_before_the_driver_answers";
    18, "a driver that is not ready":
        "n17_n18_nothing_is_announced_before_the_driver_answers_whatever_is_there",
        "n17_n18_nothing_is_announced_before_the_driver_answers";
    19, "two refusals, then success": "n12_n19_a_refusal_is_visible_and_heals_with_the_driver";
    20, "the file's mode":
        "n1_n11_n20_n21_a_driver_is_registered_over_a_stale_socket_with_protocol_v1_and_without_a_cluster",
        "n20_files_of_other_tasks_keep_their_mode_while_sockets_are_announced",
        "n1_n20_a_socket_takes_the_place_of_a_stale_one_with_its_mode_and_leaves_nothing_beside_it";
    21, "no API server":
        "n1_n11_n20_n21_a_driver_is_registered_over_a_stale_socket_with_protocol_v1_and_without_a_cluster",
        "n2_n21_l8_local_roles_alone_need_no_kubeconfig_and_open_no_connection_to_an_api";
    22, "the kubelet's authority": "n22_a_kubelet_that_names_the_sockets_path_as_the_authority_is_answered";
    23, "the path's length":
        "n23_a_driver_is_registered_through_a_path_of_107_bytes_and_a_longer_one_is_shown_with_both_lengths",
        "n23_a_path_of_107_bytes_is_announced_and_one_of_108_is_refused_with_both_lengths";
};

#[test]
fn every_row_of_the_small_roles_lists_is_proven_by_tests_that_cite_it() {
    assert_proven(LIVENESS, 13, by_letter('l'));
    assert_proven(REGISTRAR, 23, by_letter('n'));
}
