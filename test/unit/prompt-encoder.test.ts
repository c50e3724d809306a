import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';

import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';

import { tmpdir } from 'node:os';

import { join } from 'node:path';

import fc from 'fast-check';
import { type PromptRequest, promptTokenIds } from '../../engine/generation/prompt-encoder.js';

import {
  type ThreadAnswer,
  type ThreadQuestion,
  nextWork,
  UNWANTED_WORK_LIMIT_MS,
} from '../../engine/threads/thread-queue.js';
import {
  LANE_IDLE_MS,
  LANE_LENGTHS,
  PROMPT_LIMIT_MS,
  type PromptThread,
  startPromptThread,
  ThreadedPromptEncoder,
} from '../../engine/generation/threaded-prompt-encoder.js';
import type { ThreadPrompt } from '../../engine/generation/prompt-thread.js';

import { packageRoot } from '../../shared/base/files/package-root.js';

import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';

import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';

import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';

import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';

import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';

const DEMO_MODEL = join(packageRoot(), 'models', 'demo');
const never = new AbortController().signal;

function textRequest(text: string, raw = false): PromptRequest {
  return { text, messages: [], promptTokenIds: [], raw };
}

describe('the thread that tokenizes prompts', function () {
  this.timeout(60_000);
  let tokenizer: Tokenizer;
  let encoder: ThreadedPromptEncoder;
  before(async () => {
    tokenizer = await loadTokenizer(DEMO_MODEL);
    const startThread = (): PromptThread => startPromptThread(DEMO_MODEL);
    encoder = new ThreadedPromptEncoder({ startThread, queueLimit: 100, runtime: new WallRuntime() });
  });
  after(() => encoder.close());

  it('gives the output of the tokenizer, for texts, chats and token ids', async () => {
    const text = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 200 });
    const message = fc.record({ role: fc.constantFrom('user', 'assistant'), content: text });
    const requests = fc.oneof(
      fc.tuple(text, fc.boolean()).map(([prompt, raw]) => textRequest(prompt, raw)),
      fc.array(message, { minLength: 1, maxLength: 5 }).map((messages) => ({ ...textRequest(''), messages })),
      fc.array(fc.nat(1000), { minLength: 1 }).map((ids) => ({ ...textRequest(''), promptTokenIds: ids })),
    );
    await fc.assert(
      fc.asyncProperty(requests, async (request) => {
        assert.deepEqual(await encoder.encode(request, never), promptTokenIds(request, tokenizer, 0));
      }),
    );
  });

  it('never makes fewer tokens than the bytes of the text require', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 300 }), (text) => {
        const { length } = tokenizer.encode(text);
        assert.ok(length * tokenizer.longestTokenBytes >= Buffer.byteLength(text));
      }),
    );
  });

  it('leaves the event loop free while it tokenizes a long text', async () => {
    await encoder.encode(textRequest('warm'), never);
    let done = false;
    const encoding = encoder.encode(textRequest('Once upon a time. '.repeat(20_000), true), never).finally(() => {
      done = true;
    });
    let turns = 0;
    while (!done) {
      await new Promise((resolve) => setImmediate(resolve));
      turns += 1;
    }
    assert.ok((await encoding).length > 60_000);
    assert.ok(turns > 100, `${turns} turns of the event loop`);
  });

  it('reports a refusal with its code', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'odmoe-prompts-'));
    await cp(join(DEMO_MODEL, 'tokenizer.json'), join(directory, 'tokenizer.json'));
    await writeFile(join(directory, 'chat_template.jinja'), "{{ raise_exception('roles must alternate') }}");
    const startThread = (): PromptThread => startPromptThread(directory);
    const refusing = new ThreadedPromptEncoder({ startThread, queueLimit: 1, runtime: new WallRuntime() });
    await assert.rejects(refusing.encode(textRequest('hello'), never), {
      code: 'REQUEST_INVALID',
      message: /roles must alternate/,
    });
    assert.equal((await refusing.encode(textRequest('hello', true), never)).length, tokenizer.encode('hello').length);
    await refusing.close();
    await rm(directory, { recursive: true });
  });
});

/** A thread that answers when the test says so. */
class ScriptedThread extends EventEmitter implements PromptThread {
  readonly questions: ThreadQuestion<ThreadPrompt>[] = [];
  terminated = false;
  /** Error with which the end of the thread fails; null: it can be ended. */
  failure: Error | null = null;

  postMessage(question: ThreadQuestion<ThreadPrompt>): void {
    this.questions.push(question);
  }

  answer(tokenIds: number[]): void {
    const id = this.questions.at(-1)?.id ?? 0;
    const answer: ThreadAnswer<Uint32Array> = { id, kind: 'done', result: Uint32Array.from(tokenIds) };
    this.emit('message', answer);
  }

  async terminate(): Promise<void> {
    this.terminated = true;
    if (this.failure !== null) throw this.failure;
    this.emit('exit');
  }
}

describe('prompts that wait for the tokenizing thread', () => {
  let threads: ScriptedThread[];
  let clock: VirtualClock;
  let runtime: VirtualRuntime;
  let encoder: ThreadedPromptEncoder;
  beforeEach(() => {
    threads = [];
    clock = new VirtualClock();
    runtime = new VirtualRuntime(clock, 1);
    const startThread = (): ScriptedThread => {
      const thread = new ScriptedThread();
      threads.push(thread);
      return thread;
    };
    encoder = new ThreadedPromptEncoder({ startThread, queueLimit: 2, runtime });
  });
  afterEach(async () => {
    await encoder.close();
    assert.deepEqual(runtime.openCounts, { timers: 0, turns: 0, works: 0 });
  });

  const encode = (text: string, signal: AbortSignal = never): Promise<number[]> =>
    encoder.encode(textRequest(text), signal);
  const asked = (): string[] => threads.flatMap(({ questions }) => questions.map(({ request }) => request.asked.text));

  it('go one at a time, in order, and are bounded', async () => {
    const prompts = ['a', 'b', 'c'].map((text) => encode(text));
    await assert.rejects(encode('d'), { code: 'QUEUE_FULL' });
    for (const [index, prompt] of prompts.entries()) {
      assert.equal(asked().length, index + 1);
      threads[0]?.answer([index]);
      assert.deepEqual(await prompt, [index]);
    }
    assert.deepEqual(asked(), ['a', 'b', 'c']);
    assert.equal(threads.length, 1);
  });

  it('are left out when they are cancelled', async () => {
    const gone = new AbortController();
    const first = encode('a');
    const cancelled = encode('b', gone.signal);
    const last = encode('c');
    gone.abort();
    await assert.rejects(cancelled, { code: 'CANCELLED' });
    await assert.rejects(encode('d', gone.signal), { code: 'CANCELLED' });
    threads[0]?.answer([1]);
    threads[0]?.answer([2]);
    assert.deepEqual([await first, await last], [[1], [2]]);
    assert.deepEqual(asked(), ['a', 'c']);
  });

  it('are not disturbed by the late answer to a cancelled one', async () => {
    const gone = new AbortController();
    const cancelled = encode('a', gone.signal);
    const next = encode('b');
    gone.abort();
    await assert.rejects(cancelled, { code: 'CANCELLED' });
    threads[0]?.answer([7]);
    threads[0]?.answer([8]);
    assert.deepEqual(await next, [8]);
  });

  it('go to another thread when one dies; only its current prompt fails', async () => {
    const first = encode('a');
    const second = encode('b');
    const failed = assert.rejects(first, { code: 'INTERNAL', message: /out of memory/ });
    threads[0]?.emit('error', new Error('out of memory'));
    threads[0]?.emit('exit');
    await failed;
    threads[1]?.answer([2]);
    assert.deepEqual(await second, [2]);
    assert.equal(threads.length, 2);
  });

  it('learn when the encoder closes that its thread cannot be ended', async () => {
    const [thread] = threads;
    assert.ok(thread !== undefined);
    thread.failure = new Error('the thread stays');
    await assert.rejects(encoder.close(), { message: 'the thread stays' });
    thread.emit('exit');
  });

  it('go to another thread when one does not end', async () => {
    const first = encode('a');
    const second = encode('b');
    const failed = assert.rejects(first, { code: 'TIMEOUT', message: /300 s/ });
    await clock.run(() => threads[0]?.terminated === true, { untilMs: PROMPT_LIMIT_MS + 1 });
    assert.equal(clock.nowMs, PROMPT_LIMIT_MS);
    await failed;
    assert.ok(threads[0]?.terminated);
    threads[1]?.answer([2]);
    assert.deepEqual(await second, [2]);
  });

  it('go to another thread when it keeps working on a cancelled one', async () => {
    const gone = new AbortController();
    const unwanted = assert.rejects(encode('a', gone.signal), { code: 'CANCELLED' });
    const second = encode('b');
    gone.abort();
    await unwanted;
    assert.equal(threads[0]?.terminated, false);
    await clock.run(() => threads[0]?.terminated === true, { untilMs: UNWANTED_WORK_LIMIT_MS + 1 });
    assert.equal(clock.nowMs, UNWANTED_WORK_LIMIT_MS);
    assert.ok(threads[0]?.terminated);
    threads[1]?.answer([2]);
    assert.deepEqual(await second, [2]);
  });

  it('fail when the daemon stops', async () => {
    const both = [encode('a'), encode('b')].map((prompt) => assert.rejects(prompt, { code: 'NO_MAIN' }));
    await encoder.close();
    await Promise.all(both);
    await assert.rejects(encode('c'), { code: 'NO_MAIN' });
    assert.ok(threads[0]?.terminated);
    assert.equal(threads.length, 1);
  });

  it('wait only for others of their lane: a long one has a thread of its own, which ends when it is idle', async () => {
    const [shortest, middle] = LANE_LENGTHS;
    const long = encode('l'.repeat(middle + 1));
    const half = encode('m'.repeat(shortest + 1));
    const short = encode('a');
    assert.equal(threads.length, 3);
    threads[0]?.answer([1]);
    assert.deepEqual(await short, [1]);
    threads[2]?.answer([2]);
    assert.deepEqual(await half, [2]);
    threads[1]?.answer([3]);
    assert.deepEqual(await long, [3]);
    await clock.run(() => clock.nowMs > LANE_IDLE_MS, { untilMs: LANE_IDLE_MS + 1 });
    assert.deepEqual(
      threads.map(({ terminated }) => terminated),
      [false, true, true],
    );
    const again = encode('l'.repeat(middle + 1));
    threads[3]?.answer([4]);
    assert.deepEqual(await again, [4]);
  });

  it('of a lane go the shortest first, but waiting raises their turn, so that none waits for ever', async () => {
    const running = encode('r');
    const long = encode('l'.repeat(20_000));
    const short = encode('s');
    threads[0]?.answer([1]);
    await running;
    assert.deepEqual(asked().at(-1), 's');
    threads[0]?.answer([2]);
    assert.deepEqual(await short, [2]);
    threads[0]?.answer([3]);
    assert.deepEqual(await long, [3]);
    fc.assert(
      fc.property(
        fc.array(fc.record({ length: fc.nat(70_000), sinceMs: fc.nat(10_000) }), { minLength: 1 }),
        (waiting) => {
          const next = waiting[nextWork(waiting, 10_000)];
          const isBetter = (one: (typeof waiting)[number]): boolean =>
            next !== undefined && one.length < next.length && one.sinceMs <= next.sinceMs;
          assert.ok(!waiting.some(isBetter));
          // After the time that a megabyte takes, no newcomer goes before it.
          const old = { length: 999_999, sinceMs: 0 };
          const newcomers = waiting.map(({ length }) => ({ length, sinceMs: 20_000 }));
          assert.equal(nextWork([...newcomers, old], 20_000), waiting.length);
        },
      ),
    );
  });
});
