import type { Command } from 'commander';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { printableJson, printableLine } from '../../shared/base/text/printable-text.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { type DrainState, drainWords, othersLackBytes } from '../../shared/decisions/draining/drain-state.js';
import { formatBytes } from '../../shared/base/text/units.js';
import { withPeerDeadline } from '../../shared/base/runtime/peer-wait.js';
import { METHODS } from '../../shared/transport/methods.js';
import type { DrainedNode, StatusReply } from '../../shared/wire/messages.js';
import { addOperatorFlags, askMain, type OperatorFlags } from '../client/ask-operator.js';
import { askStatus } from '../client/ask-status.js';
import { findMain, type ReachedMain } from '../client/find-main.js';
import { meantNode } from '../client/meant-node.js';
import { runtime } from '../client/process-runtime.js';

const POLL_MS = 500;
/** Longest wait for other workers to fetch what the drained one ran: 60 GB over a gigabit. */
const OTHERS_LIMIT_MS = 600_000;
/** A worker tells what it lacks a moment after main has told it what it needs. */
const QUIET_POLLS = 3;

interface DrainFlags extends OperatorFlags {
  undo: boolean;
}

/** `odmoe drain`: gives a worker or a shadow no new work, and waits until its daemon may be stopped. */
export function registerDrainCommand(program: Command): void {
  const command = program
    .command('drain')
    .description('give a worker or a shadow no new work, and say when its daemon may be stopped')
    .argument('<id>', 'as odmoe status shows it, or the name of a host with one daemon')
    .option('--undo', 'give it work again', false);
  addOperatorFlags(command)
    .addHelpText(
      'after',
      `
Others take its experts over at once, and answers go on. The command waits for what runs there, and at most ten minutes for others to fetch
what they lack of it, and ends with status 0 when the daemon may be stopped. It gets work again when it is started anew, and when main is.

Examples:
  odmoe drain jetson-2
  odmoe drain jetson-2 && ssh jetson-2 sudo systemctl restart odmoe-worker
  odmoe drain jetson-2 --undo`,
    )
    .action(async (given: string, { undo, ...flags }: DrainFlags) => {
      const main = await findMain(flags);
      const id = meantNode(given, await drainableIds(main));
      const said = (line: string): void => {
        if (!flags.json) standardOutput.write(`${printableLine(line)}\n`);
      };
      const end = undo ? await undoDrain(main, id, said) : await drain(main, id, said);
      if (flags.json) standardOutput.write(`${printableJson(snakeCaseKeys(end))}\n`);
    });
}

async function drainableIds(main: ReachedMain): Promise<string[]> {
  const { nodes, drained = [] } = await askStatus(main);
  return [...new Set([...nodes.map(({ identity }) => identity.id), ...drained.map(({ id }) => id)])];
}

type Said = (line: string) => void;

async function undoDrain(main: ReachedMain, id: string, said: Said): Promise<object> {
  await askMain(main, METHODS.operator.drain, { id, undo: true });
  said(`${id} gets work.`);
  return { id, state: 'in use' };
}

/** Returns the node when it may go. Throws NO_WORKERS if it goes on because no other worker is there. */
async function drain(main: ReachedMain, id: string, said: Said): Promise<DrainedNode> {
  const { node } = await askMain(main, METHODS.operator.drain, { id, undo: false });
  let last = requirePresent(node, 'main names the node that it drains.');
  if (!mayGo(last)) said(`${id} ${drainWords(last)}.`);
  while (!mayGo(last)) {
    if (last.state === ('needed' satisfies DrainState)) throw new OdmoeError('NO_WORKERS', neededWords(id, last));
    await runtime.sleep(POLL_MS);
    last = nodeNow(await askStatus(main), last);
  }
  const lackedBytes = last.role === 'worker' ? await awaitOthers(main, last, said) : 0;
  if (lackedBytes === 0) said(`${id} ${drainWords(last)}.`);
  else said(`${id} is drained and may go, but others still lack ${formatBytes(lackedBytes)}: answers wait for that.`);
  return last;
}

/** Waits until the workers with a part of the pack hold what they need without the drained one. Returns the bytes that they lack in the end. */
async function awaitOthers(main: ReachedMain, last: DrainedNode, said: Said): Promise<number> {
  const { id } = last;
  return withPeerDeadline(runtime, OTHERS_LIMIT_MS, async (hasPassed) => {
    let wasSaid = false;
    for (let quietPolls = 0; ;) {
      const { nodes } = await askStatus(main);
      const lackedBytes = othersLackBytes(nodes, last);
      quietPolls = lackedBytes === 0 ? quietPolls + 1 : 0;
      if (lackedBytes === null || quietPolls === QUIET_POLLS || hasPassed()) return lackedBytes ?? 0;
      if (lackedBytes > 0 && !wasSaid) {
        said(`${id} ${drainWords(last, lackedBytes)}.`);
        wasSaid = true;
      }
      await runtime.sleep(POLL_MS);
    }
  });
}

function mayGo({ state }: DrainedNode): boolean {
  return state === ('may go' satisfies DrainState);
}

/** The node as the status has it. One that is not connected any more does no work. Throws USAGE if it gets work again. */
function nodeNow({ drained = [], nodes }: StatusReply, last: DrainedNode): DrainedNode {
  const { id } = last;
  const known = drained.find((node) => node.id === id);
  if (known !== undefined) return known;
  if (nodes.some(({ identity }) => identity.id === id)) {
    throw new OdmoeError(
      'USAGE',
      `${id} gets work again: somebody has undone its drain, or it, or main, was started anew`,
    );
  }
  const state: DrainState = 'may go';
  return { ...last, state, openExperts: 0 };
}

function neededWords(id: string, node: DrainedNode): string {
  return `${id} ${drainWords(node)}; main moves its work there at once, and odmoe drain ${id} --undo ends this wish`;
}
