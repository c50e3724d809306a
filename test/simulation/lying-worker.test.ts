import assert from 'node:assert/strict';
import type { LocalEngine } from '../../engine/generation/local-engine.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import type { Falsify } from '../../simulator/faults/false-values.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import { openReference } from '../integration/harness/test-models.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

const PROMPT = Array.from({ length: 40 }, (_, index) => 1 + ((index * 37) % 250));
const REQUEST = requestFor(PROMPT, { maxTokens: 16, logprobs: 5 });
/** Continues from the rows of REQUEST. */
const NEXT = requestFor([...PROMPT, 7, 9, 11], { maxTokens: 8, logprobs: 5 });
const NAN = 0x7fc00000;
const INFINITY = 0x7f800000;
const LIAR = 'worker-0';
const HONEST = 'worker-1';

/** Replaces the first value by these bits. */
const giving =
  (bits: number): Falsify =>
  (output) => {
    new DataView(output.buffer, output.byteOffset).setUint32(0, bits, true);
  };

/** A wrong finite number, which main cannot distinguish from a right one. */
const wrongNumbers: Falsify = (output) => {
  output[1] = (output[1] ?? 0) ^ 0xff;
};

describe('a simulated worker that sends non-finite values', () => {
  let reference: LocalEngine;
  let expected: CollectedAnswer;
  let expectedNext: CollectedAnswer;
  let cluster: VirtualCluster;

  before(async () => {
    reference = await openReference('tiny');
    const answer = (request: GenerateRequest): Promise<CollectedAnswer> =>
      collect(reference.generate(request, new AbortController().signal));
    expected = await answer(REQUEST);
    expectedNext = await answer(NEXT);
  });

  after(() => {
    reference.dispose();
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
  });

  async function assertSetAside(ids: readonly string[], placed: number): Promise<void> {
    const { problems, placement, nodes } = await cluster.status();
    const named = problems.filter(({ code }) => code === 'WORKER_DISTRUSTED').map(({ id }) => id);
    assert.deepEqual(named.sort(), [...ids].sort());
    assert.equal(placement?.workers.length, placed);
    for (const id of ids)
      assert.ok(
        nodes.some(({ identity }) => identity.id === id),
        `${id} is still shown`,
      );
  }

  for (const [what, bits] of Object.entries({ NaN: NAN, Infinity: INFINITY })) {
    for (const shadow of [undefined, 'int8'] as const) {
      it(`${what} from the first ${shadow === undefined ? 'without' : 'with'} a shadow: it is set aside, the answer is as without it`, async () => {
        cluster = await VirtualCluster.start({ workers: 2, ...(shadow === undefined ? {} : { shadow }) });
        cluster.deviceOf(LIAR).falsify = giving(bits);
        assertSameAnswer(await cluster.ask(REQUEST), expected);
        await assertSetAside([LIAR], 1);
        assertSameAnswer(await cluster.ask(NEXT), expectedNext);
      });
    }
  }

  it('in the middle of an answer: its rows are computed again, and the answer goes on to the bit', async () => {
    cluster = await VirtualCluster.start({
      workers: 3,
      shadow: 'int8',
      main: { drafting: { optimistic: true, rows: 3 } },
    });
    let begins = 0;
    cluster.simulated.network.tap = (way, _from, _to, { kind }) => {
      if (way === 'arrived' && kind === 'begin') begins += 1;
    };
    const answer = cluster.ask(REQUEST, undefined, (count) => {
      if (count === 5) cluster.deviceOf(LIAR).falsify = giving(NAN);
    });
    assertSameAnswer(await answer, expected);
    await assertSetAside([LIAR], 2);
    assert.ok(((await cluster.status()).passes?.preemptions ?? 0) > 0, 'rows were computed anew');
    assert.equal(begins, 2, 'shadow, which had rows of these, gets the beginning of the sequence again');
  });

  it('after wrong numbers in the same pass: no output of that pass was given out, and the answer is right', async () => {
    const request = { ...REQUEST, promptLogprobs: true };
    const right = await collect(reference.generate(request, new AbortController().signal));
    cluster = await VirtualCluster.start({ workers: 2 });
    let uses = 0;
    cluster.deviceOf(LIAR).falsify = (output) => (++uses > 2 ? giving(NAN) : wrongNumbers)(output);
    assertSameAnswer(await cluster.ask(request), right);
    await assertSetAside([LIAR], 1);
  });

  it('after wrong numbers in an earlier answer: an answer that continues its rows ends with a code', async () => {
    cluster = await VirtualCluster.start({ workers: 2 });
    cluster.deviceOf(LIAR).falsify = wrongNumbers;
    await cluster.ask(REQUEST);
    cluster.node(LIAR).kill();
    await cluster.waitForRoster(1, 0);
    const asking = cluster.ask({ ...NEXT, maxTokens: 64, ignoreEos: true }, undefined, (count) => {
      if (count !== 2) return;
      cluster.deviceOf(LIAR).falsify = giving(NAN);
      cluster.node(LIAR).start();
    });
    await assert.rejects(asking, { code: 'WORKER_DISTRUSTED' });
    await assertSetAside([LIAR], 1);
  });

  it('after wrong numbers in a continuing answer: the answer ends with a code, and its rows are dropped', async () => {
    cluster = await VirtualCluster.start({ workers: 2 });
    cluster.deviceOf(LIAR).falsify = wrongNumbers;
    const asking = cluster.ask(REQUEST, undefined, (count) => {
      if (count === 3) cluster.deviceOf(LIAR).falsify = giving(NAN);
    });
    await assert.rejects(asking, { code: 'WORKER_DISTRUSTED' });
    await assertSetAside([LIAR], 1);
    assertSameAnswer(await cluster.ask(REQUEST), expected);
  });

  it('after an answer with wrong numbers: its rows are dropped, and the next answers are right', async () => {
    cluster = await VirtualCluster.start({ workers: 2 });
    cluster.deviceOf(LIAR).falsify = wrongNumbers;
    const first = await cluster.ask(REQUEST);
    assert.throws(() => {
      assertSameAnswer(first, expected);
    }, 'the first answer is wrong, and nobody can know');
    cluster.deviceOf(LIAR).falsify = giving(NAN);
    const other = requestFor([5, 6, 7, 8], { maxTokens: 2 });
    await cluster.ask(other);
    await assertSetAside([LIAR], 1);
    assertSameAnswer(await cluster.ask(NEXT), expectedNext);
  });

  it('gets work again after a restart', async () => {
    cluster = await VirtualCluster.start({ workers: 2 });
    cluster.deviceOf(LIAR).falsify = giving(NAN);
    await cluster.ask(REQUEST);
    cluster.deviceOf(LIAR).falsify = null;
    await assertSetAside([LIAR], 1);
    cluster.node(LIAR).kill();
    await cluster.startAgain(LIAR);
    await cluster.waitForRoster(2, 0);
    await assertSetAside([], 2);
    assertSameAnswer(await cluster.ask(REQUEST), expected);
  });

  it('beside another such worker: both are set aside by a third', async () => {
    cluster = await VirtualCluster.start({ workers: 3 });
    cluster.deviceOf(LIAR).falsify = giving(NAN);
    cluster.deviceOf(HONEST).falsify = giving(INFINITY);
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    await assertSetAside([LIAR, HONEST], 1);
  });

  it('as the only worker: no worker is blamed, the error says so, and no rows are stored', async () => {
    cluster = await VirtualCluster.start({ workers: 1 });
    cluster.deviceOf(LIAR).falsify = giving(NAN);
    await assert.rejects(cluster.ask(REQUEST), { code: 'OUTPUT_NOT_FINITE', message: /no other worker/ });
    await assertSetAside([], 1);
    cluster.deviceOf(LIAR).falsify = null;
    assertSameAnswer(await cluster.ask(REQUEST), expected);
  });

  it('beside another with different values: nobody can say who is right, and no worker is blamed', async () => {
    cluster = await VirtualCluster.start({ workers: 2 });
    cluster.deviceOf(LIAR).falsify = giving(NAN);
    cluster.deviceOf(HONEST).falsify = giving(INFINITY);
    await assert.rejects(cluster.ask(REQUEST), { code: 'OUTPUT_NOT_FINITE', message: /different values/ });
    await assertSetAside([], 2);
  });

  for (const workers of [2, 3]) {
    it(`as all ${workers} do, because the model does: checkpoint or prompt are named, and no worker`, async () => {
      cluster = await VirtualCluster.start({ workers });
      for (let worker = 0; worker < workers; worker++)
        cluster.deviceOf(`worker-${worker}`).falsify = giving(worker % 2 === 0 ? NAN : NAN + 1);
      await assert.rejects(cluster.ask(REQUEST), { code: 'MODEL_CORRUPT', message: /checkpoint or this prompt/ });
      await assertSetAside([], workers);
      for (let worker = 0; worker < workers; worker++) cluster.deviceOf(`worker-${worker}`).falsify = null;
      assertSameAnswer(await cluster.ask(REQUEST), expected);
    });
  }

  it('beside main’s own worker, which is asked for a second opinion, too', async () => {
    cluster = await VirtualCluster.start({ workers: 0, main: { main: { experts: 'both' } } });
    await cluster.addWorker(LIAR);
    await cluster.waitForRoster(2, 0);
    cluster.deviceOf(LIAR).falsify = giving(NAN);
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    await assertSetAside([LIAR], 1);
  });
});
