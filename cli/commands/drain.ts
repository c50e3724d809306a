import type { Command } from 'commander';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { printableJson, printableLine } from '../../shared/base/text/printable-text.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { type DrainState, drainWords } from '../../shared/decisions/draining/drain-state.js';
import { METHODS } from '../../shared/transport/methods.js';
import type { DrainedNode, StatusReply } from '../../shared/wire/messages.js';
import { addOperatorFlags, askMain, type OperatorFlags } from '../client/ask-operator.js';
import { askStatus } from '../client/ask-status.js';
import { findMain, type ReachedMain } from '../client/find-main.js';
import { runtime } from '../client/process-runtime.js';

const POLL_MS = 500;

interface DrainFlags extends OperatorFlags {
  undo: boolean;
}

/** `odmoe drain`: gives a worker or a shadow no new work, and waits until its daemon may be stopped. */
export function registerDrainCommand(program: Command): void {
  const command = program
    .command('drain')
    .description('give a worker or a shadow no new work, and say when its daemon may be stopped')
    .argument('<id>', 'as odmoe status shows it')
    .option('--undo', 'give it work again', false);
  addOperatorFlags(command)
    .addHelpText(
      'after',
      `
Others take its experts over at once, and answers go on. The command waits for what runs there and ends with status 0 when the daemon may
be stopped. It gets work again when it is started anew, and when main is.

Examples:
  odmoe drain jetson-2
  odmoe drain jetson-2 && ssh jetson-2 sudo systemctl restart odmoe-worker
  odmoe drain jetson-2 --undo`,
    )
    .action(async (id: string, { undo, ...flags }: DrainFlags) => {
      const main = await findMain(flags);
      const said = (line: string): void => {
        if (!flags.json) standardOutput.write(`${printableLine(line)}\n`);
      };
      const end = undo ? await undoDrain(main, id, said) : await drain(main, id, said);
      if (flags.json) standardOutput.write(`${printableJson(snakeCaseKeys(end))}\n`);
    });
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
  said(`${id} ${drainWords(last)}.`);
  return last;
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
