import assert from 'node:assert/strict';
import type { LocalEngine } from '../../engine/generation/local-engine.js';
import { LEAST_PAUSE_MS } from '../../main-node/verify/execution-checks.js';
import { NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';
import type { Execute, GenerateRequest, Verification } from '../../shared/wire/messages.js';
import type { Falsify } from '../../simulator/faults/false-values.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import { openReference } from '../integration/harness/test-models.js';
import type { SettingsChanges } from '../integration/harness/test-settings.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

const PROMPT = Array.from({ length: 12 }, (_, index) => 1 + ((index * 37) % 250));
const REQUEST = requestFor(PROMPT, { maxTokens: 16, logprobs: 5 });
const NEXT = requestFor([...PROMPT, 7, 9, 11], { maxTokens: 8, logprobs: 5 });
const LONG = { ...requestFor([3, 5], { maxTokens: 200 }), ignoreEos: true };
const LIAR = 'worker-0';
/** Time in which all checks that wait have run, while nothing is asked. */
const CHECKS_MS = 5000;

/** Two homes for each expert, and workers that keep the experts: checks run beside answers. */
const REPLICAS: SettingsChanges = { homes: 'strict', replicas: 2 };
const KEEPS: SettingsChanges = {
  worker: { cachePolicy: 'lru', pools: { ...NO_CAPACITIES, full: 64 } },
};

const zeros: Falsify = (output) => void output.fill(0);
/** Flips the last bit of a number in one of `every` outputs. */
const flipsOneIn = (every: number): Falsify & { count: { executes: number; lies: number } } => {
  const count = { executes: 0, lies: 0 };
  const falsify: Falsify = (output) => {
    if (++count.executes % every !== 0) return;
    count.lies += 1;
    output[0] = (output[0] ?? 0) ^ 1;
  };
  return Object.assign(falsify, { count });
};

describe('a simulated cluster that verifies executions', () => {
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

  const start = async (
    workers: number,
    { share = 1, main = {}, worker = {} }: { share?: number; main?: SettingsChanges; worker?: SettingsChanges } = {},
  ): Promise<void> => {
    const changes = { ...main, main: { ...main.main, verifyShare: share } };
    cluster = await VirtualCluster.start({ workers, main: changes, worker: () => worker });
  };

  const verification = async (): Promise<Verification> =>
    (await cluster.status()).verification ?? assert.fail('main verifies nothing');

  async function distrusted(): Promise<string[]> {
    const { problems } = await cluster.status();
    return problems.filter(({ code }) => code === 'WORKER_DISTRUSTED').map(({ id }) => id);
  }

  it('blames nobody while all are honest, and changes no bit', async () => {
    await start(3);
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    await cluster.sleep(CHECKS_MS);
    const { agreed, differed, open, impossible, obstacle } = await verification();
    assert.ok(agreed > 20, `${agreed} executions were compared`);
    assert.deepEqual([differed, open, impossible, obstacle], [0, 0, 0, '']);
    assert.deepEqual(await distrusted(), []);
  });

  for (const workers of [2, 3]) {
    it(`finds one of ${workers} workers that gives zeros: it is set aside, its rows go, and later answers are right`, async () => {
      await start(workers);
      cluster.deviceOf(LIAR).falsify = zeros;
      await cluster.ask(REQUEST);
      await cluster.sleep(CHECKS_MS);
      assert.deepEqual(await distrusted(), [LIAR]);
      assert.ok((await verification()).differed > 0);
      assertSameAnswer(await cluster.ask(REQUEST), expected);
      assertSameAnswer(await cluster.ask(NEXT), expectedNext);
    });
  }

  it('finds one that flips a bit in one of ten outputs, and ends the answer that has used it', async () => {
    await start(3, { main: REPLICAS, worker: KEEPS, share: 0.5 });
    await cluster.ask(LONG);
    const lie = flipsOneIn(10);
    cluster.deviceOf(LIAR).falsify = lie;
    let tokens = 0;
    await assert.rejects(
      cluster.ask(LONG, undefined, (count) => void (tokens = count)),
      { code: 'WORKER_DISTRUSTED' },
    );
    assert.deepEqual(await distrusted(), [LIAR]);
    assert.ok(tokens < 200, 'before the end of the answer');
    // A lie passes unseen with a probability of 0.5 at most, where checks are not dropped.
    assert.ok(lie.count.lies < 60, `${lie.count.lies} lies were told`);
    assertSameAnswer(await cluster.ask(REQUEST), expected);
  });

  it('says that nothing can be compared where each expert has one worker', async () => {
    await start(1);
    await cluster.ask(REQUEST);
    const alone = await verification();
    assert.match(alone.obstacle, /only one worker/);
    assert.ok(alone.impossible > 0 && alone.agreed === 0);
    assert.ok(cluster.log.matching('cannot be compared').length > 0);
  });

  it('asks for checks by messages of the same form as work', async () => {
    const executes: { to: string; atMs: number; execute: Execute }[] = [];
    await start(3, { main: REPLICAS, worker: KEEPS });
    await cluster.ask(REQUEST);
    await cluster.sleep(CHECKS_MS);
    cluster.simulated.network.tap = (way, _from, to, message) => {
      if (way !== 'sent' || message.kind !== 'execute') return;
      const { execute } = message;
      // The buffer belongs to the pass, which uses it again.
      executes.push({ to, atMs: cluster.nowMs, execute: { ...execute, hidden: execute.hidden.slice() } });
    };
    await cluster.ask(NEXT);
    await cluster.sleep(CHECKS_MS);
    // The answer's sequence is the first: its first check comes later.
    const own = executes[0]?.execute.pass.sequence ?? assert.fail('nothing was asked of workers');
    const checks = executes.filter(({ execute }) => execute.pass.sequence !== own);
    const work = executes.filter(({ execute }) => execute.pass.sequence === own);
    assert.ok(checks.length > 10 && work.length > 10, `${checks.length} checks and ${work.length} messages of work`);
    const formOf = ({ execute }: { execute: Execute }): string => {
      const { epoch, hiddenSize, dtype, pass, experts } = execute;
      const ofExperts = experts.map((expert) => [Object.keys(expert), expert.last]);
      return JSON.stringify([Object.keys(execute).sort(), epoch, hiddenSize, dtype, Object.keys(pass), ofExperts]);
    };
    const forms = new Set(work.map(formOf));
    for (const check of checks) {
      const { pass, rows, layer, experts, hidden } = check.execute;
      assert.ok(forms.has(formOf(check)), formOf(check));
      assert.equal(experts.length, 1);
      assert.deepEqual([rows[0]?.sequence, rows[0]?.position], [pass.sequence, pass.position]);
      assert.ok(pass.sequence > own && pass.sequence < own + 1000, 'numbers are of one series');
      const original = work.find(
        ({ to, execute }) =>
          to !== check.to &&
          execute.layer === layer &&
          execute.experts.some(({ expert }) => expert === experts[0]?.expert) &&
          Buffer.from(execute.hidden).includes(Buffer.from(hidden.subarray(0, 4 * check.execute.hiddenSize))),
      );
      assert.ok(original !== undefined, 'another worker is asked for what one was asked');
      assert.ok(check.atMs - original.atMs >= LEAST_PAUSE_MS, 'it does not follow at once');
    }
  });
});
