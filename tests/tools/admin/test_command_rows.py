"""The table of commands agrees with mqadmin and with the functions."""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.codes import DLedgerRequestCode, RequestCode
from twistmq.tools.admin.command_line import AdminCommand, all_commands
from twistmq.tools.admin.command_rows import LEFT_OUT
from twistmq.tools.admin.rows import GROUPS, Command

#: The commands mqadmin 5.3.3 registers, by the folder of their classes. Source: MQAdminStartup.
MQADMIN: Final = {
    "topic": {"updateTopic", "updateTopicList", "deleteTopic", "updateTopicPerm", "topicRoute",
              "topicStatus", "topicClusterList", "topicList", "updateOrderConf", "allocateMQ",
              "updateStaticTopic", "remappingStaticTopic"},
    "consumer": {"updateSubGroup", "updateSubGroupList", "setConsumeMode", "deleteSubGroup",
                 "consumerProgress", "consumerStatus", "getConsumerConfig", "startMonitoring"},
    "offset": {"cloneGroupOffset", "resetOffsetByTime", "skipAccumulatedMessage"},
    "message": {"queryMsgById", "queryMsgByKey", "queryMsgByUniqueKey", "queryMsgByOffset",
                "queryMsgTraceById", "printMsg", "printMsgByQueue", "checkMsgSendRT", "sendMessage",
                "consumeMessage", "dumpCompactionLog"},
    "connection": {"consumerConnection", "producerConnection"},
    "producer": {"producer"},
    "cluster": {"clusterList", "clusterRT"},
    "broker": {"brokerStatus", "brokerConsumeStats", "cleanExpiredCQ", "cleanUnusedTopic",
               "deleteExpiredCommitLog", "getBrokerConfig", "updateBrokerConfig", "getBrokerEpoch",
               "resetMasterFlushOffset", "sendMsgStatus", "setCommitLogReadAheadMode",
               "getColdDataFlowCtrInfo", "updateColdDataFlowCtrGroupConfig",
               "removeColdDataFlowCtrGroupConfig"},
    "namesrv": {"addWritePerm", "wipeWritePerm", "updateKvConfig", "deleteKvConfig",
                "getNamesrvConfig", "updateNamesrvConfig"},
    "queue": {"queryCq", "checkRocksdbCqWriteProgress"},
    "stats": {"statsAll"},
    "ha": {"haStatus"},
    "export": {"exportConfigs", "exportMetadata", "exportMetrics", "exportMetadataInRocksDB",
               "exportPopRecord"},
}

#: Commands of these groups that mqadmin does not have.
OURS: Final = {"promoteSlave", "followMaster", "leadershipTransfer", "dledgerStatus"}

#: By version and command: what mqadmin declares of each option.
OPTIONS: Final[dict[str, dict[str, list[list[str]]]]] = {
    version: json.loads((Path(__file__).resolve().parents[2]
                         / f"golden/mqadmin-options/{version}.json").read_text())
    for version in ("5.3.3", "4.9.4")}
#: Options of an older mqadmin whose flag is another option of 5.3.3.
OTHERWISE: Final = {"4.9.4": {("resetOffsetByTime", "-c")}}
#: Options that mqadmin can do without only by failing, and why they are needed.
NEEDED: Final = {
    ("resetMasterFlushOffset", "brokerAddr"): "there is nobody to tell else",
    ("resetMasterFlushOffset", "offset"): "mqadmin fails at reading it",
    ("updateAclConfig", "secretKey"): "an account without is refused",
}


def function_of(row: Command) -> Any:
    """Return the function of a command."""
    module, _, name = row.function.rpartition(":")
    return getattr(import_module(
        module if "." in module else f"twistmq.tools.admin.{module}"), name)


class TableTests(SynchronousTestCase):
    """The table ``COMMANDS`` and the rows of packages."""

    def test_names_and_groups(self) -> None:
        """Each of mqadmin's commands in these groups exists, or its absence is explained."""
        for group, names in MQADMIN.items():
            ours = {row.name for row in all_commands().values()
                    if row.group == group and row.name not in OURS}
            left_out = names & LEFT_OUT.keys()
            self.assertEqual(ours | left_out, names, msg=group)
            self.assertEqual(ours & left_out, set(), msg=group)
        self.assertLessEqual(OURS, all_commands().keys() - OPTIONS["5.3.3"].keys())
        self.assertEqual(LEFT_OUT.keys() - OPTIONS["5.3.3"].keys(), set())
        self.assertLessEqual(set().union(*MQADMIN.values()), OPTIONS["5.3.3"].keys())

    def test_the_commands_of_accounts_are_those_of_both_schemes(self) -> None:
        """mqadmin has the commands of ACL 1.0 up to 5.2, and of ACL 2.0 from 5.3 on."""
        ours = {row.name for row in all_commands().values() if row.group == "acl"}
        self.assertEqual(ours, {
            "updateAclConfig", "deleteAclConfig", "updateGlobalWhiteAddr",
            "clusterAclConfigVersion", "getAclConfig", "createUser", "updateUser", "deleteUser",
            "getUser", "listUser", "copyUser", "createAcl", "updateAcl", "deleteAcl", "getAcl",
            "listAcl", "copyAcl", "migrateAcl"})

    def test_every_option_of_mqadmin_is_accepted_under_its_names(self) -> None:
        """Each option of mqadmin is accepted under its names, with a value if it needs one.

        A blank at the end of a long name is a slip of mqadmin's.
        """
        for version, commands in OPTIONS.items():
            for name, options in commands.items():
                row = all_commands().get(name)
                if row is None:
                    self.assertIn(name, LEFT_OUT, msg=version)
                    continue
                taken = {flag: each for each in AdminCommand(row).params for flag in each.opts}
                taken.update((option.quoted, taken[option.flags[0]]) for option in row.options
                             if option.quoted)
                for short, long, kind, need in options:
                    for flag in filter(None, (short and f"-{short}", f"--{long.strip()}")):
                        if (name, flag) in OTHERWISE.get(version, ()):
                            continue
                        self.assertIn(flag, taken, msg=f"{version} {name} {flag}")
                        option = taken[flag]
                        assert isinstance(option, click.Option)
                        self.assertEqual(option.is_flag, kind == "flag", msg=f"{name} {flag}")
                        if option.required and not need:
                            self.assertIn((name, long), NEEDED, msg=version)

    def test_names_with_a_blank(self) -> None:
        """They are one word of the shell, as in mqadmin, also with a value."""
        for version, commands in OPTIONS.items():
            asked = {(name, long): short for name, options in commands.items()
                     for short, long, *_ in options if " " in long and name in all_commands()}
            self.assertGreater(len(asked), 10, msg=version)
            for (name, long), short in asked.items():
                command = AdminCommand(all_commands()[name])
                [option] = [each for each in command.params if f"-{short}" in each.opts]
                assert option.name is not None
                for words in ([f"--{long}", "1"], [f"--{long}=1"]):
                    context = click.Context(command, resilient_parsing=True)
                    command.parse_args(context, words)
                    self.assertIn(context.params[option.name], (1, "1", True), msg=f"{name} {long}")
        command = AdminCommand(all_commands()["clusterRT"])
        for word in ("--prin log", "--print  log", "print log", "--size large"):
            context = click.Context(command)
            self.assertRaises(click.UsageError, command.parse_args, context, [word, "1"])

    def test_functions_take_the_options(self) -> None:
        """A command's function has just its options as parameters."""
        for row in all_commands().values():
            first, *others = inspect.signature(function_of(row)).parameters.values()
            options = {option.name for option in row.options} - {"interval"}
            self.assertEqual(first.name, "session", msg=row.name)
            if any(each.kind is each.VAR_KEYWORD for each in others):
                self.assertLessEqual({each.name for each in others} - {"settings"}, options)
            else:
                self.assertEqual({each.name for each in others}, options, msg=row.name)

    def test_rows_are_whole(self) -> None:
        """Groups, codes and options are complete; no flag is used for two options."""
        common = {"-n", "--namesrv", "--namesrvAddr", "--output", "--access-key", "--timeout",
                  "--tls", "--tls-config",
                  "-h", "--help"}
        for row in all_commands().values():
            flags = [flag for option in row.options for flag in option.flags]
            self.assertEqual(len(flags), len(set(flags)), msg=row.name)
            self.assertEqual(set(flags) & common, set(), msg=row.name)
            self.assertIn(row.group, GROUPS, msg=row.name)
            self.assertTrue(row.columns and row.requests, msg=row.name)
            self.assertLessEqual({type(code) for code in row.requests},
                                 {RequestCode, DLedgerRequestCode}, msg=row.name)
            names = {option.name for option in row.options}
            self.assertLessEqual({*row.other_columns, *row.one_of}, names, msg=row.name)
