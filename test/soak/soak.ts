/**
 * `npm run test:soak [-- --minutes N]`: main, shadow and two workers answer prompts of the demo model, each in a process of its own. Fails
 * when the memory of one of them grows after the warm-up, or when an answer differs from the one before.
 */
import assert from 'node:assert/strict';
import { parseArgs } from 'node:util';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import { requestFor } from '../integration/harness/answers.js';
import { ProcessCluster } from '../integration/harness/process-cluster.js';
import { growthOf, residentBytes } from './resident-memory.js';

const DEFAULT_MINUTES = 10;
/** Share of the whole time in which caches fill and code is compiled. */
const WARM_UP_SHARE = 0.3;
const SAMPLES_AFTER_WARM_UP = 60;
/** After the warm-up. Half of an answer a second that leaves 64 KiB behind would exceed it in ten minutes. */
const MOST_GROWTH_BYTES = 16 * 2 ** 20;
/** Every so many answers, one is cancelled after a few tokens: what it held must be given back, too. */
const CANCEL_EVERY = 7;
const CANCEL_AFTER_TOKENS = 5;
const DAEMONS = ['main', 'shadow', 'worker-0', 'worker-1'];
const PROMPTS = [
  'Tell me a story about a fox.',
  'What is 17 plus 25?',
  'Tell me a story about a boat and a lamp.',
  `Tell me a story. ${'It is a long one. '.repeat(12)}`,
];

const mebibytes = (bytes: number): string => (bytes / 2 ** 20).toFixed(1);

function requestOf(prompt: string): GenerateRequest {
  return { ...requestFor([], { maxTokens: 60, ignoreEos: false, logprobs: 1 }), text: prompt };
}

/** Asks prompt after prompt until the time is over; each answer must be the one that this prompt had before. */
class Asker {
  answers = 0;
  cancelled = 0;
  private readonly texts = new Map<string, string>();

  constructor(private readonly cluster: ProcessCluster) {}

  async askUntil(endMs: number): Promise<void> {
    for (let round = 0; performance.now() < endMs; round++) {
      const prompt = PROMPTS[round % PROMPTS.length] ?? '';
      if (round % CANCEL_EVERY === CANCEL_EVERY - 1) await this.cancel(prompt);
      else await this.ask(prompt);
    }
  }

  private async ask(prompt: string): Promise<void> {
    const { finished } = await this.cluster.ask(requestOf(prompt));
    assert.equal(finished.text, this.texts.get(prompt) ?? finished.text, `the answer to "${prompt}" has changed`);
    this.texts.set(prompt, finished.text);
    this.answers++;
  }

  private async cancel(prompt: string): Promise<void> {
    const controller = new AbortController();
    const onToken = (count: number): void => {
      if (count === CANCEL_AFTER_TOKENS) controller.abort();
    };
    await this.cluster.ask(requestOf(prompt), onToken, controller.signal).catch((thrown: unknown) => {
      if (!controller.signal.aborted) throw thrown;
    });
    this.cancelled++;
  }
}

/** Resident bytes of each daemon, by its id, at equal intervals from the warm-up to the end. */
async function sample(cluster: ProcessCluster, startMs: number, endMs: number): Promise<Map<string, number[]>> {
  const samples = new Map<string, number[]>(DAEMONS.map((id) => [id, []]));
  const warmMs = startMs + WARM_UP_SHARE * (endMs - startMs);
  for (let index = 1; index <= SAMPLES_AFTER_WARM_UP; index++) {
    const dueMs = warmMs + (index / SAMPLES_AFTER_WARM_UP) * (endMs - warmMs);
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, dueMs - performance.now())));
    for (const [id, bytes] of samples) bytes.push(await residentBytes(cluster.daemon(id).pid));
  }
  return samples;
}

/** Prints the figures; the ids of the daemons that have grown beyond the bound. */
function report(samples: ReadonlyMap<string, readonly number[]>): string[] {
  console.log('daemon      after warm-up  at the end   growth  (MiB, resident)');
  const grown: string[] = [];
  for (const [id, bytes] of samples) {
    const { firstBytes, lastBytes, growthBytes } = growthOf(bytes);
    const figures = [firstBytes, lastBytes, growthBytes].map((figure) => mebibytes(figure).padStart(11)).join(' ');
    console.log(`${id.padEnd(12)} ${figures}`);
    if (growthBytes > MOST_GROWTH_BYTES) grown.push(id);
  }
  return grown;
}

function minutesGiven(): number {
  const { values } = parseArgs({ options: { minutes: { type: 'string', default: String(DEFAULT_MINUTES) } } });
  const minutes = Number(values.minutes);
  if (!(minutes > 0)) throw new Error(`--minutes is a number above 0, not "${values.minutes}"`);
  return minutes;
}

async function main(): Promise<void> {
  const durationMs = minutesGiven() * 60_000;
  const cluster = await ProcessCluster.start('demo', 2, true);
  try {
    const startMs = performance.now();
    const asker = new Asker(cluster);
    const [samples] = await Promise.all([
      sample(cluster, startMs, startMs + durationMs),
      asker.askUntil(startMs + durationMs),
    ]);
    console.log(`${asker.answers} answers, and ${asker.cancelled} cancelled ones, in ${durationMs / 60_000} min`);
    const grown = report(samples);
    if (grown.length === 0) return;
    console.log(`FAILED: ${grown.join(', ')} grew by more than ${mebibytes(MOST_GROWTH_BYTES)} MiB after the warm-up`);
    process.exitCode = 1;
  } catch (thrown) {
    cluster.printLog();
    throw thrown;
  } finally {
    await cluster.end();
  }
}

await main();
