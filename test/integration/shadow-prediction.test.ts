import type { RunningNode } from '../../engine/daemon/running-node.js';
import assert from 'node:assert/strict';
import { cacheRowFloats, type ModelShape } from '../../shared/model/model-shape.js';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { assignPredictedExperts } from '../../shared/decisions/placement/assign-predicted-experts.js';
import type { BeginSequence } from '../../shared/wire/messages.js';
import { startShadow } from '../../shadow-node/main.js';
import { TestLog } from './harness/test-log.js';
import { packOf } from './harness/test-models.js';
import { testSettings } from './harness/test-settings.js';
import { waitUntil } from './harness/wait-until.js';
import { ResidentModel } from './shadow/resident-model.js';
import { placementOf, PredictionListener, ScriptedMain } from './shadow/scripted-peers.js';
import { ENVIRONMENT } from '../wall.js';

const SEQUENCE = 7;
const EPOCH = 3;

interface Reference {
  references: { prompt_token_ids: number[]; token_ids: number[] }[];
}

describe('shadow predictions', () => {
  const log = new TestLog();
  let settings: NodeSettings;
  let shadow: RunningNode;
  let local: ResidentModel;
  let main: ScriptedMain;
  let promptIds: number[];
  let tokenIds: number[];
  const workers = [
    new PredictionListener('worker-1'),
    new PredictionListener('worker-2'),
    new PredictionListener('worker-3'),
  ];

  before(async () => {
    const pack = await packOf('demo');
    settings = testSettings('shadow', pack, { precision: 'int8' });
    shadow = await startShadow(settings, ENVIRONMENT, log.logger('shadow'));
    local = await ResidentModel.load(pack, 'int8');
    const text = await readFile(join(packageRoot(), 'models', 'demo', 'reference.json'), 'utf8');
    const [story] = (JSON.parse(text) as Reference).references;
    assert.ok(story !== undefined);
    promptIds = story.prompt_token_ids;
    tokenIds = story.token_ids.slice(0, 12);
    for (const worker of workers) await worker.start(settings.network, log.logger(worker.id));
  });

  after(async () => {
    await shadow.stop();
    for (const worker of workers) await worker.stop();
    local.dispose();
  });

  beforeEach(async () => {
    for (const worker of workers) worker.predictions.length = 0;
    main = await ScriptedMain.connect(shadow.address, settings.network);
    await main.greet();
    assert.ok(main.welcomed, main.refusal?.message);
    main.send({ kind: 'placement', placement: placementOf(workers, local.shape, EPOCH) });
    await waitUntil('the shadow is connected to every worker', () =>
      workers.every(({ openStreams }) => openStreams === 1),
    );
  });

  afterEach(async function () {
    if (this.currentTest?.state === 'failed') log.print();
    main.stream.close();
    await waitUntil('the shadow has left the workers', () => workers.every(({ openStreams }) => openStreams === 0));
  });

  function begin(changes: Partial<BeginSequence> = {}): void {
    main.send({
      kind: 'begin',
      begin: {
        epoch: EPOCH,
        sequence: SEQUENCE,
        tokenIds: promptIds,
        alignTokenPeriod: 1,
        alignKvPeriod: 0,
        promptTokens: promptIds.length,
        maxPositions: promptIds.length + 40,
        optimistic: false,
        spread: false,
        sampling: null,
        ...changes,
      },
    });
  }

  function announce(position: number, tokenId: number): void {
    main.send({
      kind: 'token',
      token: { epoch: EPOCH, sequence: SEQUENCE, position, tokenId, rows: 1, nextRows: 1, branch: 0 },
    });
  }

  const lastArrived = (position: number) => main.waitForPosition(SEQUENCE, position, local.shape.expertLayers);

  function assertPredicted(expected: { expertsAt(position: number, layer: number): number[] }, position: number): void {
    for (let layer = 0; layer < local.shape.expertLayers; layer += 1) {
      const predicted = main.expertsAt(SEQUENCE, position, layer);
      assert.deepEqual(predicted, expected.expertsAt(position, layer), `position ${position}, layer ${layer}`);
      assert.equal(predicted.length, local.shape.expertsPerToken);
    }
  }

  it('equal those of the quantized model on main’s tokens, and reach main and, in parts, each worker', async () => {
    const expected = await local.start(promptIds);
    begin();
    for (const tokenId of tokenIds) {
      const position = expected.position;
      announce(position, tokenId);
      await expected.step(tokenId);
      await lastArrived(position);
      assertPredicted(expected, position);
    }
    const placement = placementOf(workers, local.shape, EPOCH);
    await waitUntil('every worker has its part', () => {
      const predicted = workers.flatMap(({ predictions }) => predictions).flatMap(({ experts }) => experts);
      return predicted.length === tokenIds.length * local.shape.expertLayers * local.shape.expertsPerToken;
    });
    for (const worker of workers) {
      for (const { epoch, pass, layer, experts } of worker.predictions) {
        const { sequence, position } = pass;
        assert.deepEqual({ epoch, sequence }, { epoch: EPOCH, sequence: SEQUENCE });
        const assignment = assignPredictedExperts(placement, layer, expected.expertsAt(position, layer));
        const own = [...assignment].filter(([, workerId]) => workerId === worker.id).map(([expert]) => expert);
        assert.deepEqual(experts.toSorted(), own.sort());
      }
    }
    await expected.end();
  });

  for (const period of [0, 1, 3]) {
    it(`with token period ${period} use main’s tokens at the iterations that it names, else the shadow’s own`, async () => {
      const expected = await local.start(promptIds);
      begin({ alignTokenPeriod: period });
      for (let iteration = 1; iteration <= 8; iteration += 1) {
        const position = expected.position;
        // Never what the shadow would have chosen itself.
        const mainToken = (expected.next + 17) % local.shape.vocabSize;
        const aligned = period > 0 && (iteration - 1) % period === 0;
        announce(position, mainToken);
        await expected.step(aligned ? mainToken : expected.next);
        await lastArrived(position);
        assertPredicted(expected, position);
      }
      await expected.end();
    });
  }

  it('follow main’s keys and values at the iterations of the period', async () => {
    const period = 2;
    const expected = await local.start(promptIds);
    const unaligned = await local.start(promptIds);
    begin({ alignKvPeriod: period });
    const rowBytes = rowBytesOf(local.shape);
    let changed = 0;
    for (const [index, tokenId] of tokenIds.entries()) {
      const position = expected.position;
      // Rows that no model computes, so that it shows whether they are used: of the prompt first, then of each iteration.
      const from = index === 0 ? 0 : position - 1;
      for (let layer = 0; layer < local.shape.expertLayers; layer += 1) {
        const bytes = unlikelyRows(layer, from, position - from, rowBytes);
        const rows = { epoch: EPOCH, sequence: SEQUENCE, layer, position: from, rows: position - from };
        main.send({ kind: 'cacheRows', cacheRows: { ...rows, values: bytes } });
      }
      announce(position, tokenId);
      if (index % period === 0) {
        // Due now: everything up to here that has not been written yet.
        const dueFrom = index === 0 ? 0 : position - period;
        for (let layer = 0; layer < local.shape.expertLayers; layer += 1) {
          const bytes = unlikelyRows(layer, dueFrom, position - dueFrom, rowBytes);
          expected.sequence.cache.writeRows(layer, dueFrom, position - dueFrom, bytes);
        }
      }
      await expected.step(tokenId);
      await unaligned.step(tokenId);
      await lastArrived(position);
      assertPredicted(expected, position);
      for (let layer = 0; layer < local.shape.expertLayers; layer += 1) {
        const same = expected.expertsAt(position, layer).join() === unaligned.expertsAt(position, layer).join();
        if (!same) changed += 1;
      }
    }
    assert.ok(changed > 0, 'other keys and values lead to other experts somewhere, else this shows nothing');
    await expected.end();
    await unaligned.end();
  });

  it('reach main for passed positions as well', async () => {
    const expected = await local.start(promptIds);
    // All announced at once: the shadow starts behind, and catches up.
    begin();
    tokenIds.forEach((tokenId, index) => announce(promptIds.length + index, tokenId));
    for (const tokenId of tokenIds) await expected.step(tokenId);
    const last = promptIds.length + tokenIds.length - 1;
    await lastArrived(last);
    for (let position = promptIds.length; position <= last; position += 1) assertPredicted(expected, position);
    await expected.end();
  });

  it('continue after a shadow joined late: the tokens after the prompt are prefilled too', async () => {
    const expected = await local.start([...promptIds, ...tokenIds.slice(0, 5)]);
    begin({ tokenIds: [...promptIds, ...tokenIds.slice(0, 5)] });
    for (const tokenId of tokenIds.slice(5)) {
      const position = expected.position;
      announce(position, tokenId);
      await expected.step(tokenId);
      await lastArrived(position);
      assertPredicted(expected, position);
    }
    assert.equal(Math.min(...main.predictions.map(({ pass }) => pass.position)), promptIds.length + 5);
    await expected.end();
  });

  it('of two sequences do not mix', async () => {
    const other = SEQUENCE + 1;
    const firstExpected = await local.start(promptIds);
    const secondExpected = await local.start(promptIds.slice(0, 9));
    begin();
    begin({ sequence: other, tokenIds: promptIds.slice(0, 9), promptTokens: 9 });
    for (const [index, tokenId] of tokenIds.entries()) {
      const otherToken = (tokenId + 100) % local.shape.vocabSize;
      announce(promptIds.length + index, tokenId);
      main.send({
        kind: 'token',
        token: {
          epoch: EPOCH,
          sequence: other,
          position: 9 + index,
          tokenId: otherToken,
          rows: 1,
          nextRows: 1,
          branch: 0,
        },
      });
      await firstExpected.step(tokenId);
      await secondExpected.step(otherToken);
    }
    const last = tokenIds.length - 1;
    await lastArrived(promptIds.length + last);
    await main.waitForPosition(other, 9 + last, local.shape.expertLayers);
    for (const index of tokenIds.keys()) {
      assertPredicted(firstExpected, promptIds.length + index);
      for (let layer = 0; layer < local.shape.expertLayers; layer += 1) {
        assert.deepEqual(main.expertsAt(other, 9 + index, layer), secondExpected.expertsAt(9 + index, layer));
      }
    }
    await firstExpected.end();
    await secondExpected.end();
  });

  it('are counted in the status, with the aligned rows and tokens', async () => {
    begin({ alignKvPeriod: 1 });
    const rowBytes = rowBytesOf(local.shape);
    for (let layer = 0; layer < local.shape.expertLayers; layer += 1) {
      const bytes = new Uint8Array(promptIds.length * rowBytes);
      const rows = { epoch: EPOCH, sequence: SEQUENCE, layer, position: 0, rows: promptIds.length };
      main.send({ kind: 'cacheRows', cacheRows: { ...rows, values: bytes } });
    }
    const [before] = main.statuses;
    assert.ok(before !== undefined, 'the first status comes with the welcome');
    announce(promptIds.length, tokenIds[0] ?? 0);
    await lastArrived(promptIds.length);
    const counted = main.statuses.length;
    await waitUntil('the next status arrives', () => main.statuses.length > counted);
    const status = main.statuses.at(-1);
    assert.ok(status !== undefined);
    assert.equal(status.predictedPositions - before.predictedPositions, 1);
    assert.equal(status.alignedTokens - before.alignedTokens, 1);
    assert.equal(status.alignedKvRows - before.alignedKvRows, promptIds.length);
    assert.ok(status.deviceMemoryHighWaterBytes > 0);
  });
});

/** The same rows whenever they are asked for. */
function unlikelyRows(layer: number, position: number, rows: number, rowBytes: number): Uint8Array {
  const values = new Float32Array((rows * rowBytes) / 4);
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < rowBytes / 4; column += 1) {
      values[(row * rowBytes) / 4 + column] = 3 * Math.sin(1 + layer * 7 + (position + row) * 13 + column * 5);
    }
  }
  return new Uint8Array(values.buffer);
}

/** Bytes of the cache row of one position, which are the same in all of the fixture's layers. */
function rowBytesOf({ layers, hiddenSize }: ModelShape): number {
  const [first] = layers;
  assert.ok(first !== undefined);
  return cacheRowFloats(first.mixer, hiddenSize) * 4;
}
