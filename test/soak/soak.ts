/**
 * `npm run test:soak [-- --minutes N] [-- --page]`: main, shadow and two workers answer prompts of the demo model, each in a process of its own. Fails
 * when the memory of one of them grows after the warm-up, or when an answer differs from the one before. With --page Chromium shows main's page
 * meanwhile, one view after the other, and the page's heap must not grow. Then main makes much garbage for the page and collects it late, so the
 * daemons' memory is printed and not judged.
 */
import assert from 'node:assert/strict';
import { parseArgs } from 'node:util';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import { requestFor } from '../integration/harness/answers.js';
import { findBrowser } from '../integration/harness/browser.js';
import { ProcessCluster } from '../integration/harness/process-cluster.js';
import { WatchedPage } from '../integration/harness/watched-page.js';
import { growthOf, growthOfMedians, residentBytes } from './resident-memory.js';

const DEFAULT_MINUTES = 10;
/** Share of the whole time in which caches fill and code is compiled. */
const WARM_UP_SHARE = 0.3;
const SAMPLES_AFTER_WARM_UP = 60;
/** After the warm-up. Half of an answer a second that leaves 64 KiB behind would exceed it in ten minutes. */
const MOST_GROWTH_BYTES = 16 * 2 ** 20;
/** Of the page: less than its figures of ten minutes and its passes take. */
const MOST_PAGE_GROWTH_BYTES = 2 * 2 ** 20;
/** Every so many answers, one is cancelled after a few tokens: what it held must be given back, too. */
const CANCEL_EVERY = 7;
const CANCEL_AFTER_TOKENS = 5;
const DAEMONS = ['main', 'shadow', 'worker-0', 'worker-1'];
const PAGE = 'page';
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

/** Resident bytes of each daemon, by its id, and the heap of the page, at equal intervals from the warm-up to the end. */
async function sample(
  cluster: ProcessCluster,
  page: WatchedPage | null,
  startMs: number,
  endMs: number,
): Promise<Map<string, number[]>> {
  const samples = new Map<string, number[]>(DAEMONS.map((id) => [id, []]));
  const heaps: number[] = [];
  if (page !== null) samples.set(PAGE, heaps);
  const warmMs = startMs + WARM_UP_SHARE * (endMs - startMs);
  for (let index = 1; index <= SAMPLES_AFTER_WARM_UP; index++) {
    const dueMs = warmMs + (index / SAMPLES_AFTER_WARM_UP) * (endMs - warmMs);
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, dueMs - performance.now())));
    for (const id of DAEMONS) samples.get(id)?.push(await residentBytes(cluster.daemon(id).pid));
    if (page === null) continue;
    heaps.push((await page.size()).heapBytes);
    await page.turn();
  }
  return samples;
}

/** Prints the figures; the ids of the daemons that have grown beyond the bound. */
function report(samples: ReadonlyMap<string, readonly number[]>): string[] {
  console.log('daemon      after warm-up  at the end   growth  (MiB, resident; of the page: heap)');
  const grown: string[] = [];
  for (const [id, bytes] of samples) {
    const { firstBytes, lastBytes, growthBytes } = id === PAGE ? growthOfMedians(bytes) : growthOf(bytes);
    const figures = [firstBytes, lastBytes, growthBytes].map((figure) => mebibytes(figure).padStart(11)).join(' ');
    console.log(`${id.padEnd(12)} ${figures}`);
    const isJudged = id === PAGE || !samples.has(PAGE);
    if (isJudged && growthBytes > mostGrowth(id)) grown.push(id);
  }
  return grown;
}

function mostGrowth(id: string): number {
  return id === PAGE ? MOST_PAGE_GROWTH_BYTES : MOST_GROWTH_BYTES;
}

interface Flags {
  durationMs: number;
  withPage: boolean;
}

function flagsGiven(): Flags {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string', default: String(DEFAULT_MINUTES) },
      page: { type: 'boolean', default: false },
    },
  });
  const minutes = Number(values.minutes);
  if (!(minutes > 0)) throw new Error(`--minutes is a number above 0, not "${values.minutes}"`);
  return { durationMs: minutes * 60_000, withPage: values.page };
}

async function openPage(cluster: ProcessCluster): Promise<WatchedPage> {
  const path = findBrowser();
  if (path === undefined) throw new Error('--page needs Chromium: none is in the PATH, and CHROME_PATH names none');
  return WatchedPage.open(path, `http://${(await cluster.status()).httpAddress}`);
}

async function main(): Promise<void> {
  const { durationMs, withPage } = flagsGiven();
  const cluster = await ProcessCluster.start('demo', 2, true, withPage ? ['--http', '127.0.0.1:0'] : []);
  let page: WatchedPage | null = null;
  try {
    if (withPage) page = await openPage(cluster);
    const startMs = performance.now();
    const asker = new Asker(cluster);
    const [samples] = await Promise.all([
      sample(cluster, page, startMs, startMs + durationMs),
      asker.askUntil(startMs + durationMs),
    ]);
    console.log(`${asker.answers} answers, and ${asker.cancelled} cancelled ones, in ${durationMs / 60_000} min`);
    page?.assertNothingWrong();
    const grown = report(samples);
    if (grown.length === 0) return;
    const bounds = grown.map((id) => `${id} grew by more than ${mebibytes(mostGrowth(id))} MiB`);
    console.log(`FAILED: after the warm-up ${bounds.join(', ')}`);
    process.exitCode = 1;
  } catch (thrown) {
    cluster.printLog();
    throw thrown;
  } finally {
    await page?.close();
    await cluster.end();
  }
}

await main();
