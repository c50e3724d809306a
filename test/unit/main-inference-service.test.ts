import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import type { PromptEncoder } from '../../engine/generation/prompt-encoder.js';
import type { ClusterEngine } from '../../main-node/decode/cluster-engine.js';
import { MainMetrics } from '../../main-node/metrics/main-metrics.js';
import { InferenceService } from '../../main-node/rpc/inference-service.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { RUNTIME } from '../wall.js';
import { plainRequest } from './wire-messages.js';

const REQUEST = plainRequest({ text: '', promptTokenIds: [1, 2] });

/** A service whose requests all wait for the tokens of their prompts. */
function waitingService(): { service: InferenceService; reject: (error: Error) => void } {
  let reject: (error: Error) => void = () => undefined;
  const held = new Promise<number[]>((_, fail) => (reject = fail));
  held.catch(() => undefined);
  return { service: serviceWith(() => held), reject: (error) => reject(error) };
}

function serviceWith(
  encode: PromptEncoder['encode'],
  onDeviceLost: (error: OdmoeError) => void = () => undefined,
): InferenceService {
  const prompts: PromptEncoder = { encode, close: () => Promise.resolve() };
  const shape = { vocabSize: 10, maxPositions: 20 };
  return new InferenceService({
    engine: { shape } as unknown as ClusterEngine,
    tokenizer: null,
    prompts,
    formats: null,
    eosTokenIds: [],
    arithmetic: 'exact',
    nextSequence: () => 1,
    limits: { maxActiveSequences: 1, maxQueuedRequests: 1, maxContextPositions: 0 } as never,
    nodeStatuses: () => [],
    observer: new MainMetrics().requests,
    runtime: RUNTIME,
    randomSeed: () => 1,
    onDeviceLost,
  });
}

describe('main: the inference service', () => {
  it('has stopped when everything that ran has ended, not before', async () => {
    const { service, reject } = waitingService();
    const client = new AbortController();
    const answer = service.generate(REQUEST, client.signal).next();
    const refused = assert.rejects(answer, { code: 'NO_MAIN', message: /being stopped/ });
    let stopped = false;
    const stopping = service.stop().then(() => (stopped = true));
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(stopped, false, 'a request still runs');
    reject(new Error('cancelled'));
    await Promise.all([refused, stopping]);
    assert.equal(getEventListeners(client.signal, 'abort').length, 0);
    await assert.rejects(service.generate(REQUEST, client.signal).next(), { code: 'NO_MAIN' });
  });

  it('finishes the requests that it has accepted, with all answers, and refuses new ones meanwhile', async () => {
    const { service, reject } = waitingService();
    const [client, other] = [new AbortController(), new AbortController()];
    const first = service.generate(REQUEST, client.signal).next();
    let drained = false;
    const draining = service.drain(60_000, new AbortController().signal).then(() => (drained = true));
    await assert.rejects(service.generate(REQUEST, other.signal).next(), {
      code: 'NO_MAIN',
      message: /no new requests/,
    });
    assert.equal(service.trouble?.code, 'NO_MAIN');
    const second = service.generate(REQUEST, client.signal).next();
    const refused = [first, second].map((answer) => assert.rejects(answer, /the prompt has no tokens/));
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(drained, false, 'two answers are under way');
    reject(new Error('the prompt has no tokens'));
    await Promise.all([...refused, draining]);
    await assert.rejects(service.generate(REQUEST, other.signal).next(), { code: 'NO_MAIN' });
  });

  it('does not wait for requests when it must stop at once', async () => {
    const { service, reject } = waitingService();
    const answer = service.generate(REQUEST, new AbortController().signal).next();
    const ended = assert.rejects(answer, { code: 'NO_MAIN', message: /the answer was ended/ });
    const cut = new AbortController();
    const draining = service.drain(60_000, cut.signal);
    cut.abort();
    await draining;
    const stopping = service.stop();
    reject(new Error('cancelled'));
    await Promise.all([ended, stopping]);
  });

  it('reports the lost device of main to every running request, and to later ones', async () => {
    const rejects: ((error: Error) => void)[] = [];
    const lost: string[] = [];
    const service = serviceWith(
      () => new Promise((_, fail) => rejects.push(fail)),
      (error) => lost.push(error.code),
    );
    const clients = [1, 2, 3].map(() => new AbortController());
    const answers = clients.map(({ signal }) => service.generate(REQUEST, signal).next());
    const ended = answers.map((answer) => assert.rejects(answer, { code: 'DEVICE_LOST', message: /the GPU is gone/ }));
    await new Promise((resolve) => setImmediate(resolve));
    const [first, second, third] = rejects;
    assert.ok(third !== undefined);
    first?.(new OdmoeError('DEVICE_LOST', 'the GPU is gone'));
    await ended[0];
    second?.(new OdmoeError('CANCELLED', 'main is ending'));
    const stopping = service.stop();
    third(new OdmoeError('DEVICE_LOST', 'it is gone again'));
    await Promise.all([...ended, stopping]);
    await assert.rejects(service.generate(REQUEST, new AbortController().signal).next(), { code: 'DEVICE_LOST' });
    assert.equal(service.trouble?.code, 'DEVICE_LOST');
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(lost, ['DEVICE_LOST'], 'main is notified once');
  });

  it('counts only requests whose prompt could be tokenized', async () => {
    const { service, reject } = waitingService();
    const answer = service.generate(REQUEST, new AbortController().signal).next();
    reject(new Error('no tokens'));
    await assert.rejects(answer, /no tokens/);
    assert.deepEqual(service.counts(), { activeSequences: 0, queuedRequests: 0, requests: 0, tokens: 0 });
  });
});
