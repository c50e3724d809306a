import type { Command } from 'commander';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { HTTP_CASES } from './http-cases.js';
import type { LimitsCase, CaseAnswer } from './limits-case.js';
import { measureCase } from './measure-case.js';
import { PEER_CASES } from './peer-cases.js';
import { RPC_CASES } from './rpc-cases.js';
import { passedBounds, type CaseFigures } from './verdict.js';
import { createSocket, type Socket } from 'node:dgram';
import { setTimeout as pause } from 'node:timers/promises';
import { encodeTxt } from '../../shared/transport/discovery/txt-record.js';
import { MAX_REPORTED_PROBLEMS } from '../../main-node/cluster/reported-problems.js';
import type { LimitsCluster } from './limits-cluster.js';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runtime } from '../../cli/client/process-runtime.js';
import { packForServing } from '../../packs/pack-for-serving.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { type TableColumn, tableLines } from '../../cli/output/table.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { MEGABYTE_BYTES } from '../../shared/wire/limits.js';
import { SERVICE_TYPE } from '../../shared/transport/discovery/multicast.js';
import type { MeasuredRun } from '../history/measured-run.js';

/** mDNS advertisements that any machine in the network may send. */

const GROUP = '224.0.0.251';
const PORT = 5353;
const LOOPBACK = '127.0.0.1';
const ADVERTISEMENTS = 20_000;
const AT_ONCE = 20;
const HEARD_WITHIN_MS = 3000;

/** Advertises many workers of this cluster under different names; they have another model or do not exist. */
async function flood(cluster: LimitsCluster): Promise<CaseAnswer> {
  const socket = createSocket({ type: 'udp4', reuseAddr: true });
  try {
    await new Promise<void>((resolve) => socket.bind(0, LOOPBACK, resolve));
    socket.setMulticastInterface(LOOPBACK);
    socket.setMulticastLoopback(true);
    const like = await cluster.identityLikeMain({ role: 'ROLE_WORKER', packDigest: 'f'.repeat(64) });
    for (let number = 0; number < ADVERTISEMENTS; number += 1) {
      const identity = { ...like, id: `false-${number}`, bootId: `boot-${number}`, cluster: cluster.name };
      const packet = announcementPacket(identity.id, 1024 + (number % 64_000), LOOPBACK, encodeTxt(identity, null));
      await sent(socket, packet);
      if (number % AT_ONCE === 0) await pause(1);
    }
    await pause(HEARD_WITHIN_MS);
    const { problems } = await cluster.status();
    const isHeard = problems.length > 0;
    const text = isHeard ? `${problems.length} problems reported` : 'not heard: no multicast on the loopback interface';
    return { text, expected: problems.length <= MAX_REPORTED_PROBLEMS, messages: ADVERTISEMENTS };
  } finally {
    socket.close();
  }
}

function sent(socket: Socket, packet: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.send(packet, PORT, GROUP, (error) => (error === null ? resolve() : reject(error)));
  });
}

const DISCOVERY_CASES: readonly LimitsCase[] = [
  {
    name: 'mdns-flood',
    about: `${ADVERTISEMENTS} workers of other names advertised by mDNS over loopback`,
    target: 'main',
    mainFlags: ['--discovery', 'mdns', '--interface', LOOPBACK],
    run: (cluster) => flood(cluster),
  },
];

const CASES: readonly LimitsCase[] = [...RPC_CASES, ...PEER_CASES, ...HTTP_CASES, ...DISCOVERY_CASES];
/** The exit status if a bound was passed, like that of a failed check. */
const PASSED_STATUS = 1;

interface LimitsFlags {
  only?: string[];
  json: boolean;
}

/** Adds `odmoe bench limits`. */
export function registerBenchLimits(bench: Command, run: MeasuredRun): void {
  bench
    .command('limits')
    .description('what a hostile client or peer can make a daemon do: processor time, memory, stalls, log')
    .option('--only <names>', 'cases, or beginnings of their names, separated by commas', (list) => list.split(','))
    .option('--json', 'print one JSON object and nothing else', false)
    .addHelpText(
      'after',
      `
Each case starts daemons of its own on loopback with the demo model, and does one hostile thing to one of them. Linux alone.

  processor  of all threads, less what the daemon takes when it is asked for its health and for small answers
  memory     the most while the case ran, above that of the quiet daemon
  busy       most processor time of the daemon's event loop while one such answer was waited for: its own part of a stall
  stall      longest wait for an answer to GET /health of main, or to Node.Identify of others, each asked 5 ms after the last answer;
             "quiet": of the second before the case
  beside     longest wait for one token of main, asked by another client meanwhile

Status 1: a bound was passed (column "passed").

Cases:
${CASES.map(({ name, about }) => `  ${name.padEnd(30)}${about}`).join('\n')}

Examples:
  odmoe bench limits
  odmoe bench limits --only generate,http-messages --json`,
    )
    .action(async ({ only, json }: LimitsFlags) => {
      const rows = await withInterrupt((signal) => measureAll(chosenCases(only), signal));
      run.print(limitsJson(rows), json, () => limitsTable(rows));
      if (rows.some(({ passed }) => passed.length > 0)) process.exitCode = PASSED_STATUS;
    });
}

/** Throws USAGE if no case's name begins with the given word. */
export function chosenCases(only: readonly string[] | undefined, cases = CASES): readonly LimitsCase[] {
  if (only === undefined) return cases;
  const unknown = only.find((word) => !cases.some(({ name }) => name.startsWith(word)));
  if (unknown !== undefined) {
    throw new OdmoeError('USAGE', `no case begins with "${unknown}": odmoe bench limits --help has their names`);
  }
  return cases.filter(({ name }) => only.some((word) => name.startsWith(word)));
}

async function measureAll(cases: readonly LimitsCase[], signal: AbortSignal): Promise<LimitsRow[]> {
  const packs = new HostilePacks();
  const rows: LimitsRow[] = [];
  try {
    for (const one of cases) {
      if (signal.aborted) throw new OdmoeError('CANCELLED', 'interrupted');
      const packPath = await packs.withTemplate(one.template, signal);
      const figures = await measureCase(one, packPath, signal);
      rows.push({ about: one, figures, passed: passedBounds(figures, one.bounds) });
    }
    return rows;
  } finally {
    await packs.dispose();
  }
}

const TOKENIZER_CONFIG = 'tokenizer_config.json';

/** The demo model as a pack, also with other chat templates; `dispose` removes those packs. */
class HostilePacks {
  private readonly made: string[] = [];

  /** Throws like packForServing. */
  async withTemplate(template: string | undefined, signal: AbortSignal): Promise<string> {
    const model = join(packageRoot(), 'models', 'demo');
    if (template === undefined) return packForServing(model, null, runtime, () => undefined, signal);
    const directory = await mkdtemp(join(tmpdir(), 'odmoe-limits-'));
    this.made.push(directory);
    const checkpoint = join(directory, 'model');
    await cp(model, checkpoint, { recursive: true });
    const config = JSON.parse(await readFile(join(model, TOKENIZER_CONFIG), 'utf8')) as Record<string, unknown>;
    config['chat_template'] = template;
    await writeFile(join(checkpoint, TOKENIZER_CONFIG), JSON.stringify(config));
    return packForServing(checkpoint, join(directory, 'packs'), runtime, () => undefined, signal);
  }

  async dispose(): Promise<void> {
    await Promise.all(this.made.map((directory) => rm(directory, { recursive: true })));
  }
}

/** Figures of `odmoe bench limits`, for people and for programs. Pure. */

interface LimitsRow {
  about: Pick<LimitsCase, 'name' | 'about' | 'target'>;
  figures: CaseFigures;
  /** Names of the bounds that were passed. */
  passed: readonly string[];
}

const COLUMNS: readonly TableColumn[] = [
  { title: 'case', align: 'left' },
  { title: 'to', align: 'left' },
  ...['messages', 'processor ms', 'memory MiB', 'busy ms', 'stall ms', 'quiet', 'beside ms', 'log B/s'].map(numbers),
  { title: 'passed', align: 'left' },
  { title: 'answered', align: 'left' },
];

function numbers(title: string): TableColumn {
  return { title, align: 'right' };
}

function limitsTable(rows: readonly LimitsRow[]): string {
  const cells = rows.map(({ about, figures, passed }) => {
    const { messages, processorMs, growthBytes, stallMs, quietStallMs, busyMs, besideMs, logBytesPerS, answer } =
      figures;
    const memory = (growthBytes / MEGABYTE_BYTES).toFixed(0);
    const counts = [processorMs.toFixed(0), memory, busyMs.toFixed(0), stallMs.toFixed(0), quietStallMs.toFixed(0)];
    const beside = besideMs === null ? 'unanswered' : besideMs.toFixed(0);
    const bounds = passed.length === 0 ? '-' : passed.join(', ');
    return [about.name, about.target, String(messages), ...counts, beside, logBytesPerS.toFixed(0), bounds, answer];
  });
  return `${tableLines(COLUMNS, cells).join('\n')}\n`;
}

function limitsJson(rows: readonly LimitsRow[]): unknown {
  return {
    cases: rows.map(({ about: { name, about, target }, figures, passed }) => ({
      name,
      about,
      target,
      ...(snakeCaseKeys(figures) as object),
      passed,
    })),
  };
}

/** A daemon's advertisement as a packet of multicast DNS (RFC 6762, RFC 6763). Pure. */

const TYPE_A = 1;
const TYPE_PTR = 12;
const TYPE_TXT = 16;
const TYPE_SRV = 33;
const CLASS_IN = 1;
/** A response with the authoritative flag. */
const RESPONSE_FLAGS = 0x8400;
const LIVES_S = 120;
const SERVICE = ['_' + SERVICE_TYPE, '_tcp', 'local'];

function announcementPacket(id: string, port: number, address: string, txt: Readonly<Record<string, string>>): Buffer {
  const instance = [id, ...SERVICE];
  const host = [id, 'local'];
  const answers = [
    record(SERVICE, TYPE_PTR, nameBytes(instance)),
    record(instance, TYPE_SRV, Buffer.concat([numbers16(0, 0, port), nameBytes(host)])),
    record(instance, TYPE_TXT, txtBytes(txt)),
    record(host, TYPE_A, Buffer.from(address.split('.').map(Number))),
  ];
  return Buffer.concat([numbers16(0, RESPONSE_FLAGS, 0, answers.length, 0, 0), ...answers]);
}

function record(name: readonly string[], type: number, data: Buffer): Buffer {
  return Buffer.concat([nameBytes(name), numbers16(type, CLASS_IN, 0, LIVES_S, data.length), data]);
}

function nameBytes(labels: readonly string[]): Buffer {
  return Buffer.concat([...labels.map(counted), Buffer.from([0])]);
}

function txtBytes(txt: Readonly<Record<string, string>>): Buffer {
  return Buffer.concat(Object.entries(txt).map(([key, value]) => counted(`${key}=${value}`)));
}

/** The text with its length in one byte before it. */
function counted(text: string): Buffer {
  const bytes = Buffer.from(text);
  return Buffer.concat([Buffer.from([bytes.length]), bytes]);
}

function numbers16(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(values.length * 2);
  values.forEach((value, at) => bytes.writeUInt16BE(value, at * 2));
  return bytes;
}
