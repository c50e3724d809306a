import type { Command } from 'commander';
import { minuteOf } from '../../engine/trust/roster.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { printableJson, printableLine } from '../../shared/base/text/printable-text.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { METHODS } from '../../shared/transport/methods.js';
import type { ListedNode, ListNodesReply } from '../../shared/wire/messages.js';
import { addOperatorFlags, askMain, askOperator, type OperatorFlags } from '../client/ask-operator.js';
import { findMain } from '../client/find-main.js';
import { meantNode } from '../client/meant-node.js';

import { tableLines, type TableColumn } from '../output/table.js';
import { waitingLines } from '../output/trust-report.js';

interface ListFlags extends OperatorFlags {
  all: boolean;
}

/** `odmoe node`: the machines and operators of a cluster with an authority. */
export function registerNodeCommand(program: Command): void {
  const node = program.command('node').description('the machines and operators that are in a cluster; remove one');
  registerList(node);
  registerRemove(node);
  registerReplace(node);
}

function registerList(node: Command): void {
  const command = node
    .command('list')
    .description('who is in the cluster, and which machines wait to be let in')
    .option('--all', 'also those that were removed', false);
  addOperatorFlags(command)
    .addHelpText('after', '\nExamples:\n  odmoe node list\n  odmoe node list --all --json')
    .action(async ({ all, ...flags }: ListFlags) => {
      const reply = await askOperator(flags, METHODS.operator.listNodes, {});
      const nodes = reply.nodes.filter(({ removedMs }) => all || removedMs === null);
      const shown = { ...reply, nodes };
      standardOutput.write(`${flags.json ? printableJson(snakeCaseKeys(shown)) : listLines(shown).join('\n')}\n`);
    });
}

function registerRemove(node: Command): void {
  const command = node
    .command('remove')
    .description('end the key of a machine or an operator, and its connections, at once')
    .argument('<id>', 'as odmoe node list shows it, or the name of a host with one daemon');
  addOperatorFlags(command)
    .addHelpText(
      'after',
      `
Its key never comes back. To let the machine in again, start it with --rejoin.

Example:
  odmoe node remove jetson-2`,
    )
    .action(async (given: string, flags: OperatorFlags) => {
      const { id, connections } = await removeNode(given, flags);
      const words = printableLine(`${id} is removed; ${cutWords(connections)}`);
      standardOutput.write(`${flags.json ? printableJson({ id, connections }) : words}\n`);
    });
}

function registerReplace(node: Command): void {
  const command = node
    .command('replace')
    .description('end the key of a machine that was lost, so that another one can take its id')
    .argument('<id>', 'as odmoe node list shows it, or the name of a host with one daemon');
  addOperatorFlags(command)
    .addHelpText('after', '\nExample:\n  odmoe node replace jetson-2')
    .action(async (given: string, flags: OperatorFlags) => {
      const { id, connections } = await removeNode(given, flags);
      const words = printableLine(
        `the old ${id} is removed; ${cutWords(connections)} Another machine can take its id: start it there with --id ${id}.`,
      );
      standardOutput.write(`${flags.json ? printableJson({ id, connections }) : words}\n`);
    });
}

async function removeNode(given: string, flags: OperatorFlags): Promise<{ id: string; connections: number }> {
  const main = await findMain(flags);
  const { nodes } = await askMain(main, METHODS.operator.listNodes, {});
  const present = nodes.filter(({ removedMs }) => removedMs === null);
  const id = meantNode(
    given,
    present.map((node) => node.id),
  );
  const { connections } = await askMain(main, METHODS.operator.removeNode, { id });
  return { id, connections };
}

function cutWords(connections: number): string {
  if (connections === 0) return 'it had no connection with main.';
  return connections === 1 ? 'its connection was cut.' : `its ${connections} connections were cut.`;
}

const COLUMNS: readonly TableColumn[] = [
  { title: 'node', align: 'left' },
  { title: 'role', align: 'left' },
  { title: 'in since', align: 'left' },
  { title: 'key renewed', align: 'left' },
  { title: 'removed', align: 'left' },
  { title: 'key', align: 'left' },
];

const KEY_DIGITS = 16;

function listLines({ cluster, words, nodes, waiting }: ListNodesReply): string[] {
  return [
    `cluster ${cluster}, words: ${words}`,
    '',
    ...tableLines(COLUMNS, nodes.map(nodeRow)),
    ...(waiting.length === 0 ? [] : ['', ...waitingLines(waiting)]),
  ];
}

function nodeRow({ id, role, keyDigest, sinceMs, renewedMs, removedMs }: ListedNode): string[] {
  const times = [sinceMs, renewedMs, removedMs].map((timeMs) => (timeMs === null ? '' : minuteOf(timeMs)));
  return [id, role, ...times, keyDigest.slice(0, KEY_DIGITS)];
}
