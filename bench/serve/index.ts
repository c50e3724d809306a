import { InvalidArgumentError, Option, type Command } from 'commander';
import { type TableColumn, tableLines } from '../../cli/output/table.js';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { profileFile } from '../../cli/client/simulation-flags.js';
import { EXPERT_STORAGES, PRECISIONS, type ExpertStorage } from '../../shared/settings/setting-choices.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { type ChatTurn, DemoService, type DemoServing } from './serve-demo.js';
import { percentiles, type ServeRow } from './serve-figures.js';
import { serveSimulated } from './serve-simulated.js';
import type { MeasuredRun } from '../history/measured-run.js';

interface BenchServeFlags {
  users: number[];
  answers: number;
  workers: number;
  seed: number;
  shadow: DemoServing['shadow'];
  model?: string;
  chats: number;
  simulated: boolean;
  profile: string;
  expertStorage: ExpertStorage;
  json: boolean;
}

const MOST_USERS = 256;
const MOST_ANSWERS = 1000;
const MOST_WORKERS = 64;

/** Adds `odmoe bench serve`. */
export function registerBenchServe(bench: Command, run: MeasuredRun): void {
  bench
    .command('serve')
    .description('what several users at a time get, with batching and without')
    .option('--users <list>', 'numbers of users', parseUsers, [1, 2, 4, 8, 16])
    .option('--answers <n>', 'answers of each user', wholeNumberFlag(1, MOST_ANSWERS), 4)
    .option('--workers <n>', 'worker nodes', wholeNumberFlag(1, MOST_WORKERS), 8)
    .option('--seed <n>', 'of the lengths of prompts and answers', wholeNumberFlag(0, 2 ** 31), 1)
    .addOption(
      new Option('--shadow <precision>', 'none: no predictions').choices(['none', ...PRECISIONS]).default('int8'),
    )
    .option('--model <directory>', 'a pack or a checkpoint (default: the demo model)')
    .option(
      '--chats <n>',
      'conversations of five turns, for the time to their first tokens',
      wholeNumberFlag(0, 1000),
      5,
    )
    .option('--simulated', "a profile's cluster on the virtual clock in place of the demo cluster", false)
    .option('--profile <file>', 'with --simulated: the device profile', 'rtx3090-testbed')
    .addOption(
      new Option('--expert-storage <form>', 'with --simulated: how experts are stored')
        .choices([...EXPERT_STORAGES])
        .default('bf16'),
    )
    .option('--json', 'print one JSON object and nothing else', false)
    .addHelpText(
      'after',
      `
Each user asks again as soon as an answer is whole. Lengths of prompts and answers follow from the seed. Drafts are off. Two demo
clusters run, with batching and without, and take turns. Tokens a second are of all users together.

Examples:
  odmoe bench serve --users 1,8
  odmoe bench serve --simulated --json`,
    )
    .action(async (flags: BenchServeFlags) => {
      const report = flags.simulated ? { rows: await simulated(flags), chat: [] } : await demo(flags);
      run.print(asJson(report), flags.json, () => asText(report));
    });
}

interface ServeReport {
  rows: ServeRow[];
  /** The turns of each conversation; empty on the virtual clock. */
  chat: ChatTurn[][];
}

async function simulated({
  users,
  answers,
  workers,
  seed,
  shadow,
  profile,
  expertStorage,
}: BenchServeFlags): Promise<ServeRow[]> {
  const serving = {
    profile: loadDeviceProfile(profileFile(profile)),
    expertStorage,
    workers,
    answers,
    seed,
    prediction: shadow === 'none' ? ('off' as const) : ('sep' as const),
  };
  const rows: ServeRow[] = [];
  for (const count of users) {
    for (const batching of [true, false]) rows.push(await serveSimulated(serving, count, batching));
  }
  return rows;
}

function demo(flags: BenchServeFlags): Promise<ServeReport> {
  const { model = null, workers, shadow, answers, seed } = flags;
  return withInterrupt(async (signal) => {
    const services: DemoService[] = [];
    try {
      for (const batching of [true, false]) {
        services.push(await DemoService.start({ model, workers, shadow, answers, seed }, batching, signal));
      }
      // A first run without measurement, because main, workers and shadow have just started.
      for (const service of services) await service.run(1, signal);
      const rows: ServeRow[] = [];
      for (const count of flags.users) for (const service of services) rows.push(await service.run(count, signal));
      const chat: ChatTurn[][] = [];
      const [batched] = services;
      for (let round = 0; batched !== undefined && round < flags.chats; round += 1)
        chat.push(await batched.chat(signal));
      return { rows, chat };
    } finally {
      await Promise.all(services.map((service) => service.stop()));
    }
  });
}

function asJson({ rows, chat }: ServeReport): unknown {
  return snakeCaseKeys({ rows, chat: turnsOf(chat) });
}

/** Medians over the conversations. */
function turnsOf(chat: readonly ChatTurn[][]): ChatTurn[] {
  const [first = []] = chat;
  return first.map((_, turn) => {
    const median = (of: keyof ChatTurn): number => percentiles(chat.map((turns) => turns[turn]?.[of] ?? 0)).p50;
    return { ttftMs: median('ttftMs'), promptTokens: median('promptTokens'), cachedTokens: median('cachedTokens') };
  });
}

const ROW_COLUMNS: readonly TableColumn[] = [
  ...['users', 'batching', 'tokens/s', 'loads a token', 'TTFT p50', 'p95', 'gap p50', 'p95 (ms)'].map(numbers),
];
const TURN_COLUMNS: readonly TableColumn[] = ['turn', 'TTFT (ms)', 'prompt tokens', 'cached'].map(numbers);

function numbers(title: string): TableColumn {
  return { title, align: 'right' };
}

function asText({ rows, chat }: ServeReport): string {
  const lines = rows.map(({ users, batching, tokensPerS, loadsPerToken, ttftMs, gapMs }) => [
    String(users),
    batching ? 'on' : 'off',
    tokensPerS.toFixed(1),
    loadsPerToken.toFixed(1),
    ...[ttftMs.p50, ttftMs.p95, gapMs.p50, gapMs.p95].map((ms) => ms.toFixed(1)),
  ]);
  const turns = turnsOf(chat).map(({ ttftMs, promptTokens, cachedTokens }, turn) => [
    String(turn + 1),
    ttftMs.toFixed(1),
    String(promptTokens),
    String(cachedTokens),
  ]);
  const chatLines = turns.length > 0 ? ['', ...tableLines(TURN_COLUMNS, turns)] : [];
  return `${[...tableLines(ROW_COLUMNS, lines), ...chatLines].join('\n')}\n`;
}

function parseUsers(text: string): number[] {
  const users = text.split(',').map(Number);
  if (users.every((count) => Number.isInteger(count) && count >= 1 && count <= MOST_USERS)) return users;
  throw new InvalidArgumentError(`Give whole numbers from 1 to ${MOST_USERS}, separated by commas.`);
}
