import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { generateTokens, type GenerationOptions } from '../../engine/generation/generate-tokens.js';
import { InlinePromptEncoder } from '../../engine/generation/prompt-encoder.js';
import type { SequenceRunner } from '../../engine/generation/sequence-runner.js';
import { ThreadQueue, type ThreadQuestion, type QueueThread } from '../../engine/threads/thread-queue.js';
import { MainMetrics } from '../../main-node/metrics/main-metrics.js';
import { InferenceService } from '../../main-node/rpc/inference-service.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { GenerateReply } from '../../shared/wire/messages.js';
import { testSettings } from '../integration/harness/test-settings.js';
import { waitUntil } from '../integration/harness/wait-until.js';
import { RUNTIME } from '../wall.js';
import { HeldMain, PROMPT, SAMPLING } from './held-main.js';
import { type Closing, HeldWork, itWaitsForWork } from './held-work.js';
import { SHAPE } from './scripted-shadow-model.js';
import { plainPrediction } from './wire-messages.js';

const never = new AbortController().signal;
const nothing = (): void => undefined;

async function inPass(): Promise<Closing> {
  const [main, client] = [new HeldMain({ hasShadow: true }), new AbortController()];
  const sequence = main.sequence(client.signal);
  main.work.holdNext();
  const prefill = sequence.prefill(PROMPT);
  await waitUntil('a pass is under way', () => main.work.underWay === 1);
  client.abort();
  await assert.rejects(prefill, { code: 'CANCELLED' });
  assert.equal(main.work.underWay, 1);
  return main.closing(sequence, () => main.work.letGo());
}

async function predicted(): Promise<Closing> {
  const main = new HeldMain({ hasShadow: true });
  const sequence = main.sequence();
  await sequence.prefill(PROMPT);
  const position = PROMPT.length;
  sequence.predictions.decide(position, 0, [0, 1]);
  return main.closing(sequence, () => {
    sequence.predictions.arrive(plainPrediction({ sequence: 7, position, layer: 0, experts: [0, 1] }));
    // After the prediction it waits for this status.
    setImmediate(() => main.tellStatus());
  });
}

async function counted(): Promise<Closing> {
  const main = new HeldMain({ hasShadow: true });
  const sequence = main.sequence();
  await sequence.prefill(PROMPT);
  return { close: () => sequence.end(), letGo: () => main.tellStatus() };
}

/** A runner whose end is held back. Its loop has reached the step that `last` leads to. */
function tokens(last: (steps: ReturnType<typeof generateTokens>) => Promise<unknown>, signal = never): Closing {
  const work = new HeldWork();
  const runner: SequenceRunner = {
    prefill: async () => new Float32Array(SHAPE.vocabSize),
    decode: () => Promise.reject(new OdmoeError('NO_WORKERS', 'nobody is left')),
    end: () => work.whenLetGo(nothing),
  };
  const options: GenerationOptions = {
    maxTokens: 2,
    sampling: SAMPLING,
    constraint: null,
    stop: [],
    ignoreEos: true,
    eosTokenIds: [],
    logprobs: 0,
    promptLogprobs: false,
    showSpecialTokens: false,
  };
  const steps = generateTokens(runner, PROMPT, options, null, signal, RUNTIME);
  work.holdNext();
  let closing: Promise<unknown> | null = null;
  return { close: () => (closing ??= last(steps)), letGo: () => work.letGo() };
}

async function readOn(replies: AsyncIterable<unknown>): Promise<void> {
  for await (const reply of replies) assert.ok(reply !== undefined);
}

/** A request to one of main's services. */
function request({ engine }: HeldMain): { service: InferenceService; replies: AsyncGenerator<GenerateReply> } {
  const service = new InferenceService({
    engine,
    tokenizer: null,
    prompts: new InlinePromptEncoder(null, RUNTIME),
    formats: null,
    eosTokenIds: [],
    arithmetic: 'exact',
    nextSequence: () => 1,
    limits: testSettings('main', '/nowhere').main,
    nodeStatuses: () => [],
    observer: new MainMetrics().requests,
    runtime: RUNTIME,
    randomSeed: () => 1,
    onDeviceLost: nothing,
  });
  const fields = { text: '', messages: [], promptTokenIds: PROMPT, raw: false, maxTokens: 5, sampling: null };
  return { service, replies: service.generate({ ...fields, stop: [], ignoreEos: false, logprobs: 0 }, never) };
}

/** A service that is closed while a pass works on its request. */
async function served(close: (service: InferenceService) => Promise<unknown>): Promise<Closing> {
  const main = new HeldMain({ hasShadow: false });
  const { service, replies } = request(main);
  await replies.next();
  main.work.holdNext();
  const answer = readOn(replies).catch(nothing);
  await new Promise(setImmediate);
  assert.equal(main.work.underWay, 1);
  const holds = (): string[] => (service.openCount > 0 ? ['the request'] : []);
  return { close: () => close(service), letGo: () => (main.work.letGo(), answer), holds };
}

/** A client that stops reading after the first token. */
async function left(): Promise<Closing> {
  const main = new HeldMain({ hasShadow: true });
  const { service, replies } = request(main);
  for (const kind of ['started', 'token']) {
    const reply = await replies.next();
    assert.ok(reply.done !== true && reply.value.kind === kind);
  }
  const holds = (): string[] => (service.openCount > 0 ? ['the request'] : []);
  return { close: () => replies.return(undefined), letGo: () => main.tellStatus(), holds };
}

/** A thread that ends when the test says so. */
class LateThread extends EventEmitter implements QueueThread<string, string> {
  readonly questions: ThreadQuestion<string>[] = [];

  constructor(private readonly work: HeldWork) {
    super();
  }

  postMessage(question: ThreadQuestion<string>): void {
    this.questions.push(question);
  }

  async terminate(): Promise<void> {
    await this.work.whenLetGo(() => this.emit('exit'));
  }
}

/** A lane whose thread has a question to answer within this time. */
function laneClosing(limitMs: number): { closing: Closing; work: HeldWork } {
  const work = new HeldWork();
  const lane = new ThreadQueue<string, string>({
    startThread: () => new LateThread(work),
    queueLimit: 1,
    limitMs,
    runtime: RUNTIME,
    idleMs: null,
    words: { waiting: '', done: '', thread: '', late: () => new OdmoeError('TIMEOUT', 'late') },
  });
  work.holdNext();
  lane.run('question', 1, never).catch(nothing);
  return { closing: { close: () => lane.close(), letGo: () => work.letGo() }, work };
}

/** A thread whose answer came too late was abandoned, and it ends slowly. */
async function lateThread(): Promise<Closing> {
  const { closing, work } = laneClosing(1);
  await waitUntil('the thread is given up', () => work.underWay > 0);
  return closing;
}

describe('closing an answer waits for', () => {
  itWaitsForWork({
    'the pass that works on it, before its rows go': inPass,
    "shadow's last predictions, before its rows go": predicted,
    'what other nodes count for it': counted,
    'its sequence, where its last token is made': () =>
      tokens(async (steps) => {
        await steps.next();
        await assert.rejects(steps.next(), { code: 'NO_WORKERS' });
      }),
    'its sequence, where nobody reads on': () =>
      tokens(async (steps) => {
        await steps.next();
        await steps.return({ finishReason: 'stop', stopString: '', text: '', tokenIds: [] });
      }),
    'its sequence, where it is cancelled before it has begun': () =>
      tokens((steps) => assert.rejects(steps.next(), { code: 'CANCELLED' }), AbortSignal.abort()),
    'its sequence, where its client has gone': left,
    'its pass, where the service stops': () => served((service) => service.stop()),
    'its pass, where the service is drained': () => served((service) => service.drain(60_000, never)),
  });
});

describe('closing a lane of work in threads waits for', () => {
  itWaitsForWork({ 'its thread': () => laneClosing(60_000).closing, 'a thread that it has given up': lateThread });
});
