import { Option, type Command } from 'commander';
import { minuteOf } from '../../engine/trust/roster.js';
import { TOKEN_USES_LIMIT } from '../../engine/trust/token-book.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { printableJson } from '../../shared/base/text/printable-text.js';
import { standardError, standardOutput } from '../../shared/base/text/text-output.js';
import { formatDuration } from '../../shared/base/text/units.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { METHODS } from '../../shared/transport/methods.js';
import type { JoinTokenLine } from '../../shared/wire/messages.js';
import { addOperatorFlags, askForToken, askOperator, type OperatorFlags } from '../client/ask-operator.js';
import { durationFlag } from '../client/duration-flag.js';

import { tableLines, type TableColumn } from '../output/table.js';

interface CreateFlags extends OperatorFlags {
  role: 'worker' | 'shadow' | 'operator';
  ttl: number;
  uses: number | 'any';
  name?: string;
}

const DAY_MS = 86_400_000;

/** `odmoe token`: join tokens, for scripts. */
export function registerTokenCommand(program: Command): void {
  const token = program
    .command('token')
    .description('join tokens, by which machines join without a person: for scripts');
  registerCreate(token);
  registerList(token);
  registerRevoke(token);
}

function registerCreate(token: Command): void {
  const command = token
    .command('create')
    .description('make a token; it is shown once')
    .addOption(
      new Option('--role <role>', 'what may join by it').choices(['worker', 'shadow', 'operator']).default('worker'),
    )
    .addOption(new Option('--ttl <time>', 'how long it is good').argParser(durationFlag).default(DAY_MS, '24h'))
    .option('--uses <count>', 'how many machines may join by it; any: as many as come', usesFlag, 1)
    .option('--name <id>', 'only the machine of this id may join by it');
  addOperatorFlags(command)
    .addHelpText(
      'after',
      `
The token goes to standard output, and the words about it to standard error. Main keeps no copy of it. Who has it can join, so hand it to
a machine by a file or a variable: arguments are in the list of processes.

Examples:
  odmoe token create
  odmoe token create --role worker --ttl 24h --uses 3
  odmoe token create --role shadow --name attic-2 > token       then there: odmoe shadow --join-file token`,
    )
    .action(create);
}

async function create(flags: CreateFlags): Promise<void> {
  const { role, ttl: lifeMs, uses, name = '', json } = flags;
  const asked = { role, lifeMs, name, uses: uses === 'any' ? 0 : uses };
  const made = await askForToken(flags, asked);
  if (json) {
    standardOutput.write(`${printableJson(snakeCaseKeys({ ...made, role, name, lifeMs, uses }))}\n`);
    return;
  }
  standardOutput.write(`${made.text}\n`);
  const machines = uses === 'any' ? 'any number of machines' : uses === 1 ? '1 machine' : `${uses} machines`;
  standardError.write(`valid ${formatDuration(lifeMs)}, ${machines}, role ${role};  id ${made.id}\n`);
}

function registerList(token: Command): void {
  addOperatorFlags(token.command('list').description('the tokens that main remembers, without their secrets'))
    .addHelpText('after', '\nExample:\n  odmoe token list')
    .action(async (flags: OperatorFlags) => {
      const reply = await askOperator(flags, METHODS.operator.listTokens, {});
      const text = flags.json ? printableJson(snakeCaseKeys(reply)) : listLines(reply.tokens).join('\n');
      standardOutput.write(`${text}\n`);
    });
}

function registerRevoke(token: Command): void {
  const command = token
    .command('revoke')
    .description('end a token; machines that have joined by it stay')
    .argument('<id>', 'its id, as odmoe token list shows it');
  addOperatorFlags(command)
    .addHelpText(
      'after',
      '\nA machine that joined by it is removed by odmoe node remove.\n\nExample:\n  odmoe token revoke k7d2m9qx',
    )
    .action(async (id: string, flags: OperatorFlags) => {
      await askOperator(flags, METHODS.operator.revokeToken, { id });
      const words = `the token ${id} is revoked: nobody joins by it any more. Machines that have joined by it stay.`;
      standardOutput.write(`${flags.json ? printableJson({ id, state: 'revoked' }) : words}\n`);
    });
}

const COLUMNS: readonly TableColumn[] = [
  { title: 'token', align: 'left' },
  { title: 'role', align: 'left' },
  { title: 'for', align: 'left' },
  { title: 'state', align: 'left' },
  { title: 'uses left', align: 'right' },
  { title: 'good for', align: 'right' },
  { title: 'made', align: 'left' },
  { title: 'joined by it', align: 'left' },
];

function listLines(tokens: readonly JoinTokenLine[]): string[] {
  if (tokens.length === 0) return ['there are no tokens: odmoe token create makes one'];
  const rows = tokens.map(({ id, role, name, state, usesLeft, leftMs, createdMs, usedBy }) => [
    id,
    role,
    name === '' ? 'any' : name,
    state,
    usesLeft === null ? 'any number' : String(usesLeft),
    state === 'valid' && leftMs !== null ? formatDuration(leftMs) : '',
    minuteOf(createdMs),
    usedBy.join(', '),
  ]);
  return tableLines(COLUMNS, rows);
}

function usesFlag(value: string): number | 'any' {
  return value === 'any' ? value : wholeNumberFlag(1, TOKEN_USES_LIMIT)(value);
}
