/** Rows of prompts on main's disk, which main reads after a restart. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { LocalEngine } from '../../engine/generation/local-engine.js';
import { STORED_BLOCK_POSITIONS } from '../../main-node/stored-rows/block-names.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import { BLOCK_POSITIONS, DEVICE_BYTES } from '../../simulator/faults/draw-budget.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import type { ClusterPlan } from '../integration/harness/test-cluster.js';
import { openReference, type TestModel } from '../integration/harness/test-models.js';
import { parseMetrics, valueOf } from '../unit/prometheus-text.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

const STORE = { main: { prefixStoreBytes: 1_000_000_000 } };
const PROMPT = 5 * STORED_BLOCK_POSITIONS + 9;

const tokensOf = (seed: number, count: number): number[] =>
  Array.from({ length: count }, (_, index) => (seed * 71 + index * 37 + 3) % 300);

describe('the prefix store of a main that is lost', () => {
  let cluster: VirtualCluster | null = null;
  let reference: LocalEngine | null = null;

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
    reference?.dispose();
    reference = null;
  });

  async function begin(plan: ClusterPlan, model: TestModel = 'tiny'): Promise<VirtualCluster> {
    reference = await openReference(model);
    cluster = await VirtualCluster.start({ ...plan, model });
    return cluster;
  }

  const alone = (request: GenerateRequest): Promise<CollectedAnswer> =>
    collect((reference ?? assert.fail('no engine')).generate(request, new AbortController().signal));

  const request = requestFor(tokensOf(1, PROMPT), { maxTokens: 9, logprobs: 3 });

  async function loseMain(running: VirtualCluster, shadows: number): Promise<void> {
    await running.sleep(1000);
    running.node('main').kill();
    await running.startAgain('main');
    await running.waitForRoster(2, shadows);
  }

  const directoryOf = (running: VirtualCluster): string =>
    join(running.node('main').settings.stateDirectory, 'prefix-store');
  const blocksOf = (running: VirtualCluster): string[] =>
    readdirSync(directoryOf(running))
      .filter((name) => name.length === 64)
      .sort();
  const warningsOf = (running: VirtualCluster): string[] =>
    running.log.matching(': warn ').map((line) => /: warn (.*?) \{/.exec(line)?.[1] ?? '');

  for (const model of ['tiny', 'fixtures/deepseekv3'] as const) {
    it(`gives the next one the rows of a prompt of ${model}, and the answer's bits stay`, async () => {
      const running = await begin({ workers: 2, shadow: 'int8', main: { drafting: { rows: 4 }, ...STORE } }, model);
      const expected = await alone(request);
      assertSameAnswer(await running.ask(request), expected);
      await loseMain(running, 1);
      const answer = await running.ask(request);
      assertSameAnswer(answer, expected);
      assert.equal(answer.finished.cachedTokens, 5 * STORED_BLOCK_POSITIONS);
      const families = parseMetrics(await running.node('main').metrics());
      assert.equal(valueOf(families, 'odmoe_prefix_store_hits_total'), 1);
      assert.equal(valueOf(families, 'odmoe_prefix_store_tokens_total'), 5 * STORED_BLOCK_POSITIONS);
      const bytes = blocksOf(running).reduce((sum, name) => sum + statSync(join(directoryOf(running), name)).size, 0);
      assert.equal(valueOf(families, 'odmoe_prefix_store_bytes'), bytes);
      const longer = { ...request, promptTokenIds: [...request.promptTokenIds, 5, 6, 7] };
      const again = await running.ask(longer);
      assertSameAnswer(again, await alone(longer));
      assert.equal(again.finished.cachedTokens, PROMPT, 'memory has more than the disk');
    });
  }

  it('drops what is damaged or cut off, says so, and runs it again', async () => {
    const running = await begin({ workers: 2, main: STORE });
    const expected = await alone(request);
    await running.ask(request);
    await running.sleep(1000);
    const paths = blocksOf(running).map((name) => join(directoryOf(running), name));
    const byBlock = new Map(paths.map((path) => [/"block":(\d+)/.exec(readFileSync(path, 'latin1'))?.[1], path]));
    const [second, fourth] = [byBlock.get('1') ?? '', byBlock.get('3') ?? ''];
    const bytes = readFileSync(second);
    bytes[bytes.length - 100] = (bytes[bytes.length - 100] ?? 0) ^ 0x10;
    writeFileSync(second, bytes);
    truncateSync(fourth, statSync(fourth).size - 1);
    await loseMain(running, 0);
    const answer = await running.ask(request);
    assertSameAnswer(answer, expected);
    assert.equal(answer.finished.cachedTokens, STORED_BLOCK_POSITIONS, 'only the first block is whole');
    assert.deepEqual(
      warningsOf(running).filter((event) => event.includes('prefix store')),
      ['damaged files of the prefix store are dropped', 'a damaged file of the prefix store is dropped'],
    );
    await loseMain(running, 0);
    assert.equal((await running.ask(request)).finished.cachedTokens, 5 * STORED_BLOCK_POSITIONS, 'it was written anew');
  });

  it('never gives one client the rows of another', async () => {
    const running = await begin({ workers: 2, main: STORE });
    const expected = await alone(request);
    await running.ask(request);
    await loseMain(running, 0);
    const ofOther = await running.patiently(request);
    assertSameAnswer(ofOther, expected);
    assert.equal(ofOther.finished.cachedTokens, 0);
    await loseMain(running, 0);
    assert.equal(blocksOf(running).length, 10, 'both have their own');
    for (const ask of [running.ask(request), running.patiently(request)])
      assert.ok((await ask).finished.cachedTokens >= 5 * STORED_BLOCK_POSITIONS);
    const text = blocksOf(running)
      .map((name) => readFileSync(join(directoryOf(running), name), 'latin1'))
      .join('');
    assert.ok(!text.includes('client'), 'no client is named in the files');
  });

  it('gives rows back that memory had to drop', async () => {
    const layers = 4;
    const contextMemoryBytes = 3 * BLOCK_POSITIONS * DEVICE_BYTES.cacheRowBytes * layers;
    const running = await begin({ workers: 2, main: { main: { ...STORE.main, contextMemoryBytes } } });
    const expected = await alone(request);
    for (const seed of [1, 2, 3]) {
      await running.ask({ ...request, promptTokenIds: tokensOf(seed, PROMPT) });
      await running.sleep(1000);
    }
    const families = parseMetrics(await running.node('main').metrics());
    assert.ok(valueOf(families, 'odmoe_dropped_prefixes_total') > 0);
    const answer = await running.ask(request);
    assertSameAnswer(answer, expected);
    assert.equal(answer.finished.cachedTokens, 5 * STORED_BLOCK_POSITIONS);
  });

  it('is deleted where none is set any more', async () => {
    const running = await begin({ workers: 2, main: STORE });
    await running.ask(request);
    await running.sleep(1000);
    assert.equal(blocksOf(running).length, 5);
    const node = running.node('main');
    const settings = { ...node.settings, main: { ...node.settings.main, prefixStoreBytes: 0 } };
    Object.assign(node, { settings });
    await loseMain(running, 0);
    assert.throws(() => blocksOf(running), { code: 'ENOENT' });
    assert.equal((await running.ask(request)).finished.cachedTokens, 0);
  });

  it('does not serve a model with recurrent layers, and says why', async () => {
    const running = await begin({ workers: 2, main: STORE }, 'fixtures/lfm2moe');
    assert.ok(warningsOf(running).includes('there is no prefix store'));
    const expected = await alone(request);
    assertSameAnswer(await running.ask(request), expected);
    await loseMain(running, 0);
    const answer = await running.ask(request);
    assertSameAnswer(answer, expected);
    assert.equal(answer.finished.cachedTokens, 0);
  });
});
