import { InvalidArgumentError, Option, type Command } from 'commander';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { tableLines } from '../../cli/output/table.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { EmulatedLan, type LanHost, onHost } from './emulated-lan.js';
import { requireGivenFiles, requireLlamaFiles, requireWhole, type GivenFiles } from './given-files.js';
import {
  distributedLlamaSystem,
  DLLAMA_BUFFERS,
  llamaSystem,
  odmoeSystem,
  promptIds,
  type Speeds,
  type PeerSystem,
  type Server,
} from './systems.js';
import { standardError } from '../../shared/base/text/text-output.js';
import { spawnSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { RunningProcess } from './running-process.js';
import { lanFigures, type LanRow } from './lan-figures.js';
import { benchSameFile } from './same-file.js';
import type { Spread } from '../statistics/spread.js';
import type { MeasuredRun } from '../history/measured-run.js';

const MOST_WORKERS = 16;
const MOST_TOKENS = 4096;
const MOST_MBIT_PER_S = 1_000_000;
const MOST_ROUND_TRIP_US = 1_000_000;

interface PeersFlags extends GivenFiles {
  dllamaBuffer: (typeof DLLAMA_BUFFERS)[number];
  workers: number;
  threads: number;
  rounds: number;
  promptTokens: number;
  tokens: number;
  rate: number;
  roundTrip: number;
  json: boolean;
}

type LanFlags = PeersFlags & { model: string };

/** Adds `odmoe bench peers`. */
export function registerBenchPeers(bench: Command, run: MeasuredRun): void {
  bench
    .command('peers')
    .description(
      'odmoe beside llama.cpp RPC and distributed-llama, in turns, on hosts of an emulated LAN; or, with --gguf alone, one GGUF file in odmoe and in llama.cpp, each in one process (bench/peers/README.md)',
    )
    .option('--model <directory>', 'pack that odmoe runs on the emulated LAN')
    .option('--llama-bin <directory>', 'where llama-bench and rpc-server are (without --model: PATH, if left out)')
    .option('--gguf <file>', 'the same model for llama.cpp; without --model, the file that both read')
    .option('--dllama <file>', 'the program dllama')
    .option('--dllama-model <file>', 'the same model for distributed-llama')
    .option('--dllama-tokenizer <file>', 'its tokenizer')
    .addOption(
      new Option('--dllama-buffer <type>', 'what it sends: q80 with q40 weights, f32 with f32 weights')
        .choices(DLLAMA_BUFFERS)
        .default('q80'),
    )
    .option('--workers <count>', 'hosts beside the first', wholeNumberFlag(1, MOST_WORKERS), 2)
    .option('--threads <count>', 'processor threads of each process', wholeNumberFlag(1, 256), 1)
    .option('--rounds <count>', 'times that each system has its turn', wholeNumberFlag(1, 100), 3)
    .option('--prompt-tokens <count>', 'tokens of the prompt', wholeNumberFlag(1, MOST_TOKENS), 128)
    .option('--tokens <count>', 'tokens of the answer', wholeNumberFlag(2, MOST_TOKENS), 64)
    .option('--rate <mbit>', 'of each network card, in Mbit/s', upTo(MOST_MBIT_PER_S), 1000)
    .option('--round-trip <us>', 'of the network, in microseconds', upTo(MOST_ROUND_TRIP_US), 200)
    .option('--json', 'one JSON object on stdout', false)
    .action(async (flags: PeersFlags) => {
      await withInterrupt((signal) => benchPeers(flags, run, signal));
    });
}

function upTo(most: number): (value: string) => number {
  return (value) => {
    const number = Number(value);
    if (number > 0 && number <= most) return number;
    throw new InvalidArgumentError(`Give a number above 0, up to ${most}.`);
  };
}

async function benchPeers(flags: PeersFlags, run: MeasuredRun, signal: AbortSignal): Promise<void> {
  requireWhole(flags);
  const { model, gguf } = flags;
  try {
    if (model !== undefined) return await benchOnLan({ ...flags, model }, run, signal);
    await requireLlamaFiles(flags);
    await benchSameFile({ ...flags, gguf: requirePresent(gguf, 'a file where there is no pack') }, run, signal);
  } catch (thrown) {
    if (!signal.aborted) throw thrown;
    throw new OdmoeError('CANCELLED', 'interrupted: what was started has ended; nothing measured so far is kept', {
      cause: thrown,
    });
  }
}

async function benchOnLan(flags: LanFlags, run: MeasuredRun, signal: AbortSignal): Promise<void> {
  const { promptTokens, tokens } = flags;
  await requireGivenFiles(flags, Math.max(...promptIds(promptTokens)), promptTokens + tokens);
  const directory = await mkdtemp(join(tmpdir(), 'odmoe-peers-'));
  try {
    await measureOnLan(flags, directory, run, signal);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function measureOnLan(flags: LanFlags, directory: string, run: MeasuredRun, signal: AbortSignal): Promise<void> {
  const lan = await EmulatedLan.start(
    { hosts: flags.workers + 1, rateMbitPerS: flags.rate, roundTripUs: flags.roundTrip, directory },
    signal,
  );
  try {
    const pingUs = lan.pingUs();
    const rows = await measureInTurns(systemsOf(flags, lan.hosts), flags.rounds, signal);
    run.print(asJson(rows, flags, pingUs), flags.json, () => asText(rows, flags, pingUs));
  } finally {
    await lan.stop();
  }
}

function systemsOf(flags: LanFlags, hosts: readonly LanHost[]): PeerSystem[] {
  const { llamaBin, gguf, dllama, dllamaModel, dllamaTokenizer } = flags;
  const workload = { promptTokens: flags.promptTokens, answerTokens: flags.tokens, threads: flags.threads };
  const systems = [false, true].map((drafts) => odmoeSystem(resolve(flags.model), hosts, workload, drafts));
  if (llamaBin !== undefined && gguf !== undefined) {
    systems.push(llamaSystem(resolve(llamaBin), resolve(gguf), hosts, workload));
  }
  if (dllama !== undefined && dllamaModel !== undefined && dllamaTokenizer !== undefined) {
    const model = { path: resolve(dllamaModel), tokenizerPath: resolve(dllamaTokenizer), buffer: flags.dllamaBuffer };
    systems.push(distributedLlamaSystem(resolve(dllama), model, hosts, workload));
  }
  return systems;
}

/** Measures each system once per round, so that other load on the machine slows all of them alike. */
async function measureInTurns(systems: readonly PeerSystem[], rounds: number, signal: AbortSignal): Promise<LanRow[]> {
  const rows = systems.map(({ name }): LanRow => ({ system: name, runs: [] }));
  for (let round = 1; round <= rounds; round += 1) {
    for (const [index, system] of systems.entries()) {
      const speeds = await runSystem(system, signal);
      rows[index]?.runs.push(speeds);
      const prefill = speeds.prefillTokensPerS?.toFixed(1) ?? '-';
      const figures = `decode ${speeds.decodeTokensPerS.toFixed(2)}, prefill ${prefill} tokens/s`;
      standardError.write(`round ${round} of ${rounds}, ${system.name}: ${figures}\n`);
    }
  }
  return rows;
}

function asJson(
  rows: readonly LanRow[],
  { rate, roundTrip, workers, threads }: PeersFlags,
  pingUs: number | null,
): unknown {
  return snakeCaseKeys({
    rateMbitPerS: rate,
    roundTripUs: roundTrip,
    pingUs,
    workers,
    threads,
    systems: lanFigures(rows),
  });
}

function asText(rows: readonly LanRow[], flags: PeersFlags, pingUs: number | null): string {
  const cell = (spread: Spread | null): string =>
    spread === null ? '-' : `${spread.median.toFixed(2)} (${spread.lowest.toFixed(2)}..${spread.highest.toFixed(2)})`;
  const lines = tableLines(
    [
      { title: 'system', align: 'left' },
      { title: 'decode, tokens/s', align: 'right' },
      { title: "over llama.cpp's", align: 'right' },
      { title: 'tokens a pass', align: 'right' },
      { title: `prefill of ${flags.promptTokens}, tokens/s`, align: 'right' },
    ],
    lanFigures(rows).map(({ system, decodeTokensPerS, decodeOverLlama, tokensAPass, prefillTokensPerS }) => [
      system,
      cell(decodeTokensPerS),
      cell(decodeOverLlama),
      tokensAPass?.toFixed(2) ?? '-',
      cell(prefillTokensPerS),
    ]),
  );
  const ping =
    pingUs === null ? 'the ping command is not installed, so it was not checked' : `ping ${pingUs.toFixed(0)} us`;
  const network = `${flags.rate} Mbit/s, ${flags.roundTrip} us round trip (${ping})`;
  const how = `median and range of ${flags.rounds} rounds; ${flags.workers} workers, ${flags.threads} threads a process; ${network}`;
  return `${lines.join('\n')}\n(${how})\n`;
}

/** A worker counts only after main has placed it, some time after its start. */
const SETTLE_MS = 3_000;

/**
 * Starts the system's servers, requests one answer to warm up and one to measure, and stops the servers in any case.
 * @throws the errors of the processes (running-process.ts), and USAGE or INTERNAL if there are no figures; AbortError
 */
async function runSystem(system: PeerSystem, signal: AbortSignal): Promise<Speeds> {
  const servers: RunningProcess[] = [];
  try {
    for (const server of system.servers) {
      const name = `${system.name}: ${server.program} at ${server.host.address}`;
      const running = new RunningProcess(name, onHost(server.host, server.command), signal);
      servers.push(running);
      await running.untilReady((printed) => server.ready?.test(printed) ?? listens(server));
    }
    await sleep(SETTLE_MS, undefined, { signal });
    await measureOnce(system, signal);
    return await measureOnce(system, signal);
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

async function measureOnce(system: PeerSystem, signal: AbortSignal): Promise<Speeds> {
  const run = new RunningProcess(`${system.name}: the measurement`, onHost(system.measureHost, system.measure), signal);
  try {
    return system.parse(await run.untilDone());
  } finally {
    await run.stop();
  }
}

function listens({ host, port }: Server): boolean {
  const [file, ...rest] = onHost(host, ['ss', '-ltnH', `sport = :${port}`]);
  return spawnSync(file, rest, { encoding: 'utf8' }).stdout.includes(`:${port}`);
}
