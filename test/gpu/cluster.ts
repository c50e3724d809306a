// Whole clusters on one GPU: main, shadow and workers as processes on the demo model, whose tokens and log-probabilities must equal the
// CPU engine's to the bit, also with CPU and GPU nodes mixed.
//   node dist/test/gpu/cluster.js [--device cuda:N] [--max-tokens N]
// Last line: "N passed, N failed".
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs, promisify } from 'node:util';
import { DaemonProcess, odmoeCommand } from '../../cli/demo/daemon-process.js';
import { missingNodes } from '../../cli/demo/demo-cluster.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { NodeStatus } from '../../shared/wire/messages.js';
import { fetchStatus } from '../wall.js';

const PROMPTS = ['Tell me a story about a fox.', 'What is 17 plus 25?'];
/** Log-probabilities for each token: the demo model has no more tokens, so that every logit is compared. */
const LOGPROBS = 1024;
const COMMAND_TIMEOUT_MS = 600_000;
const START_TIMEOUT_MS = 300_000;
const STATUS_TIMEOUT_MS = 10_000;
const STATUS_POLL_MS = 100;
const OUTPUT_LIMIT_BYTES = 64 << 20;

const { values: options } = parseArgs({
  options: {
    device: { type: 'string', default: 'cuda' },
    'max-tokens': { type: 'string', default: '48' },
  },
});

/** Devices of a cluster's nodes; the shadow's null: there is none. */
interface Devices {
  main: string;
  shadow: string | null;
  workers: readonly string[];
}

const GPU = options.device;
const CLUSTERS: [string, Devices][] = [
  ['main, shadow and 3 workers on the GPU', { main: GPU, shadow: GPU, workers: [GPU, GPU, GPU] }],
  ['CPU and GPU workers mixed', { main: GPU, shadow: 'cpu', workers: [GPU, 'cpu', GPU] }],
  ['main and shadow on the CPU, workers on the GPU', { main: 'cpu', shadow: 'cpu', workers: [GPU, GPU] }],
  ['main and shadow on the GPU, workers on the CPU', { main: GPU, shadow: GPU, workers: ['cpu', 'cpu'] }],
];

interface Answer {
  token_ids: number[];
  logprobs: unknown[];
}

async function odmoe(args: readonly string[]): Promise<string> {
  const [executable, ...rest] = odmoeCommand(args);
  const limits = { timeout: COMMAND_TIMEOUT_MS, maxBuffer: OUTPUT_LIMIT_BYTES };
  const { stdout } = await promisify(execFile)(executable, rest, limits);
  return stdout;
}

async function answerOf(args: readonly string[]): Promise<Answer> {
  const generation = ['--max-tokens', options['max-tokens'], '--ignore-eos', '--logprobs', String(LOGPROBS), '--json'];
  const { token_ids, logprobs } = JSON.parse(await odmoe([...args, ...generation])) as Answer;
  assert.equal(logprobs.length, token_ids.length, 'the answer lacks log-probabilities');
  return { token_ids, logprobs };
}

/** Daemons until `use` has ended; stopped whatever happens. */
async function withCluster(pack: string, devices: Devices, use: (main: string) => Promise<void>): Promise<void> {
  const daemons: DaemonProcess[] = [];
  const place = ['--cluster', `gpu-${process.pid}`, '--discovery', 'static', '--host', '127.0.0.1', '--port', '0'];
  const launch = (role: RoleSetting, id: string, device: string, flags: readonly string[] = []) => {
    const daemon = new DaemonProcess(role, id, [
      ...place,
      '--model',
      pack,
      '--log-level',
      'warn',
      '--device',
      device,
      ...flags,
    ]);
    daemons.push(daemon);
    return daemon;
  };
  try {
    const address = await startedInTime(launch('main', 'main', devices.main));
    if (devices.shadow !== null) launch('shadow', 'shadow', devices.shadow, ['--main', address]);
    devices.workers.forEach((device, i) => launch('worker', `worker-${i + 1}`, device, ['--main', address]));
    const failed = Promise.race(daemons.map(({ ended }) => ended)).then((error) => Promise.reject(error));
    failed.catch(() => undefined);
    await Promise.race([allJoined(address, daemons), failed]);
    await use(address);
    requireTheirPart((await fetchStatus(address, STATUS_TIMEOUT_MS)).nodes, devices);
  } finally {
    await Promise.all(daemons.map((daemon) => daemon.stop()));
  }
}

async function startedInTime(daemon: DaemonProcess): Promise<string> {
  const inTime = new AbortController();
  const late = delay(START_TIMEOUT_MS, null, { signal: inTime.signal }).then(() =>
    Promise.reject(new Error(`${daemon.id} does not listen after ${START_TIMEOUT_MS} ms`)),
  );
  late.catch(() => undefined);
  try {
    return await Promise.race([daemon.listening, late]);
  } finally {
    inTime.abort();
  }
}

/** Equal answers say nothing of a node that has left, or that nobody asked. */
function requireTheirPart(nodes: readonly NodeStatus[], { main, shadow, workers }: Devices): void {
  const wanted: [string, string][] = workers.map((device, i) => [`worker-${i + 1}`, device]);
  if (shadow !== null) wanted.push(['shadow', shadow]);
  for (const [id, device] of [['main', main] as const, ...wanted]) {
    const node = nodes.find(({ identity }) => identity.id === id);
    assert.ok(node !== undefined, `${id} has left`);
    assert.match(node.identity.device, device === 'cpu' ? /^cpu / : /^cuda /, id);
    if (id.startsWith('worker')) assert.ok(node.executions > 0, `${id} has executed nothing`);
  }
}

async function allJoined(address: string, daemons: readonly DaemonProcess[]): Promise<void> {
  const deadline = Date.now() + START_TIMEOUT_MS;
  for (;;) {
    const missing = missingNodes(await fetchStatus(address, STATUS_TIMEOUT_MS), daemons);
    if (missing.length === 0) return;
    assert.ok(Date.now() < deadline, missing.join('; '));
    await delay(STATUS_POLL_MS);
  }
}

let passed = 0;
let failed = 0;

async function check(name: string, run: () => Promise<void>): Promise<void> {
  try {
    await run();
    passed += 1;
    console.log(`passed ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}: ${error instanceof Error ? error.message : String(error)}`);
  }
}

async function main(): Promise<void> {
  const model = join(packageRoot(), 'models', 'demo');
  const folder = await mkdtemp(join(tmpdir(), 'odmoe-gpu-'));
  try {
    const pack = join(folder, 'pack');
    await odmoe(['pack', model, pack]);
    const expected: Answer[] = [];
    for (const prompt of PROMPTS) expected.push(await answerOf(['generate', model, prompt, '--device', 'cpu']));
    const compare = async (ask: (prompt: string) => Promise<Answer>) => {
      for (const [i, prompt] of PROMPTS.entries()) assert.deepEqual(await ask(prompt), expected[i], prompt);
    };
    await check('the engine of one process on the GPU', () =>
      compare((prompt) => answerOf(['generate', model, prompt, '--device', GPU])),
    );
    for (const [name, devices] of CLUSTERS) {
      await check(name, () =>
        withCluster(pack, devices, (address) => compare((prompt) => answerOf(['prompt', prompt, '--main', address]))),
      );
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
}

await main();
