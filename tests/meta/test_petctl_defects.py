"""What was wrong with the original petctl, and which tests show that it is not so here."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DOOR, LIFE, FAULTS = "real/test_petctl_door.py", "real/test_petctl_life.py", "real/test_petctl_faults.py"
BOOT, LEFT = "real/test_boot.py", "real/test_petctl_left.py"
DECISIONS, WATCH = "unit/aws/test_boot_decisions.py", "real/test_petctl_watch.py"
SPECS, PLAN, SESSION = "unit/aws/test_specs.py", "unit/aws/test_plan.py", "unit/aws/test_session.py"

DEFECTS = {
    "a spot price was refused by the API": [
        (LIFE, "test_spot_hosts_are_asked_for_as_the_api_wants_it"),
        ("unit/aws/test_requests.py", "test_every_request_of_a_plan_is_one_that_the_model_of_the_service_takes"),
    ],
    "the region was ignored with default credentials": [
        (SESSION, "test_the_region_that_was_asked_for_is_the_one_of_every_client"),
    ],
    "without a region there was a traceback, and no flag for it": [
        (DOOR, "test_without_a_region_or_with_a_profile_that_is_not_there_the_flag_is_named"),
        ("unit/aws/test_flags.py", "test_region_and_profile_stand_before_or_after_the_verb"),
    ],
    "each command complained about a file of settings": [(DOOR, "test_other_dry_runs_and_help_ask_nothing")],
    "another specs file was named than the one that was read": [(DOOR, "test_a_refused_specs_file_asks_nothing")],
    "upload had no default place, and looked for the bucket in the wrong section": [
        (LIFE, "test_upload_goes_below_the_prefix_of_the_workers_or_where_it_is_told"),
    ],
    "list_hosts broke on a missing group, and waited for five minutes for hosts of an empty one": [
        (WATCH, "test_hosts_of_a_job_are_listed_at_once_also_when_there_are_none"),
    ],
    "new GPU types were not known, and an unknown accelerator meant none": [
        (SPECS, "test_a_gpu_type_of_any_generation_is_known_and_without_gpu_it_is_warned_about"),
        (SPECS, "test_a_wrong_field_is_told_by_its_path_in_one_sentence"),
    ],
    "an image that was not there broke the tool": [
        (LIFE, "test_an_image_that_is_not_there_is_one_sentence_and_nothing_is_made"),
        (LIFE, "test_an_image_is_the_one_that_an_ssm_parameter_has_when_the_job_is_submitted"),
    ],
    "kill_job ended the store before the workers, drained nobody, and needed the specs file": [
        (PLAN, "test_the_claim_is_made_first_and_removed_last_and_workers_end_before_the_store"),
        (WATCH, "test_stop_drains_to_zero_and_scale_goes_on"),
        (LIFE, "test_a_job_lives_from_run_job_to_kill_job"),
    ],
    "nothing watched a job: no status, no logs, no end, and hosts that went on for ever": [
        (BOOT, "test_two_instances_train_one_drains_and_is_replaced_and_the_end_turns_them_off"),
        (WATCH, "test_wait_shows_progress_and_returns_the_status_of_the_job"),
        (WATCH, "test_logs_are_followed_to_the_end_and_late_lines_of_other_hosts_are_not_lost"),
    ],
    "a new host for etcd had another address, and the job was dead": [
        (BOOT, "test_a_job_outlives_its_store_a_lost_host_and_a_killed_container_until_it_fails"),
        (PLAN, "test_no_address_of_a_host_is_in_a_plan_but_a_name_that_hosts_look_up"),
    ],
    "a host counted before etcd listened on it": [
        (PLAN, "test_a_host_is_in_service_when_it_works_and_goes_when_it_has_drained"),
        (DECISIONS, "test_the_store_s_host_is_not_ready_while_etcd_does_not_answer"),
    ],
    "user data had no interpreter": [
        (LIFE, "test_user_data_is_a_script_with_its_interpreter_and_knows_no_address"),
    ],
    "arguments were joined into a line for a shell": [
        ("real/test_ship.py", "test_arguments_arrive_through_a_description_and_s3_exactly_as_typed"),
        (LIFE, "test_a_job_lives_from_run_job_to_kill_job"),
        (BOOT, "test_two_instances_train_one_drains_and_is_replaced_and_the_end_turns_them_off"),
    ],
    "any name was taken for a job, and one in use broke off half way": [
        ("unit/aws/test_names.py", "test_any_other_name_is_refused_before_anything_is_made"),
        (LEFT, "test_a_name_in_use_is_refused_and_the_job_that_has_it_is_left_alone"),
    ],
    "archives were unpacked wherever they led, and addresses were run by a shell": [
        ("real/test_ship.py", "test_an_archive_that_leads_out_is_not_unpacked"),
        ("unit/ship/test_unpack.py", "test_what_would_leave_the_folder_or_is_no_code_is_refused"),
        ("real/test_ship.py", "test_the_name_of_an_object_is_never_a_command"),
    ],
    "what was made stayed behind when a later step failed": [
        (FAULTS, "test_run_job_leaves_nothing_when_one_call_fails"),
        (LEFT, "test_ctrl_c_takes_back_what_was_made_also_the_call_that_it_met"),
        (LEFT, "test_a_signal_ends_the_program_after_it_has_taken_back_what_was_made"),
    ],
    "nothing had tags, so nobody found what was left": [
        (LIFE, "test_everything_a_job_has_carries_its_tags"),
        (LEFT, "test_gc_removes_what_ended_what_expired_and_what_nothing_claims_and_nothing_else"),
    ],
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_every_known_defect_of_the_original_has_its_tests(defect: str) -> None:
    for file, name in DEFECTS[defect]:
        assert f"\ndef {name}(" in (TESTS / file).read_text(), (file, name)
