import type { RunningNode } from '../../../engine/daemon/running-node.js';
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import type { NodeSettings } from '../../../shared/settings/node-settings.js';
import { assignmentOf } from '../../../shared/decisions/placement/assignment-of.js';
import type { AlignToken, BeginSequence } from '../../../shared/wire/messages.js';
import { chooseToken } from '../../../engine/sampling/choose-token.js';
import { TokenSampler } from '../../../engine/sampling/token-sampler.js';
import { runAtOnce } from '../../../shared/base/runtime/work-steps.js';
import { resolveSampling } from '../../../shared/wire/sampling-options.js';
import { startShadow } from '../../../shadow-node/main.js';
import { TestLog } from '../../integration/harness/test-log.js';
import { packOf } from '../../integration/harness/test-models.js';
import { testSettings } from '../../integration/harness/test-settings.js';
import { waitUntil } from '../../integration/harness/wait-until.js';
import { ResidentModel, type SteppedSequence } from '../../integration/shadow/resident-model.js';
import { placementOf, PredictionListener, ScriptedMain } from '../../integration/shadow/scripted-peers.js';
import { ENVIRONMENT } from '../../wall.js';

const SEQUENCE = 7;
const EPOCH = 3;

interface Reference {
  references: { prompt_token_ids: number[]; token_ids: number[] }[];
}

describe('shadow: drafts and optimism', () => {
  const log = new TestLog();
  let settings: NodeSettings;
  let shadow: RunningNode;
  let local: ResidentModel;
  let main: ScriptedMain;
  let expected: SteppedSequence;
  let promptIds: number[];
  let tokenIds: number[];
  const workers = [new PredictionListener('worker-1'), new PredictionListener('worker-2')];

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
    main.send({ kind: 'placement', placement: placementOf(workers, local.shape, EPOCH) });
    await waitUntil('the shadow is connected to every worker', () =>
      workers.every(({ openStreams }) => openStreams === 1),
    );
    expected = await local.start(promptIds);
  });

  afterEach(async function () {
    if (this.currentTest?.state === 'failed') log.print();
    assert.deepEqual(main.errors, []);
    await expected.end();
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
        promptTokens: promptIds.length,
        alignTokenPeriod: 1,
        alignKvPeriod: 0,
        maxPositions: promptIds.length + 40,
        optimistic: false,
        spread: false,
        sampling: null,
        ...changes,
      },
    });
  }

  function announce(position: number, tokenId: number, changes: Partial<AlignToken> = {}): void {
    const passes = { rows: 1, nextRows: 1, branch: 0, ...changes };
    main.send({ kind: 'token', token: { epoch: EPOCH, sequence: SEQUENCE, position, tokenId, ...passes } });
  }

  const draftOf = (position: number) => main.drafts.findLast((draft) => draft.position === position);
  const drafted = (position: number) =>
    waitUntil(`position ${position} is drafted`, () => draftOf(position) !== undefined);

  /** The set of a pass holds what each of its positions activates, by position and rank. */
  function assertPredicted(begins: number, rows: number): void {
    for (let layer = 0; layer < local.shape.expertLayers; layer += 1) {
      const set = new Set<number>();
      for (let position = begins; position < begins + rows; position += 1) {
        for (const expert of expected.expertsAt(position, layer)) set.add(expert);
      }
      assert.deepEqual(main.lastExpertsAt(SEQUENCE, begins, layer), [...set], `pass ${begins}, layer ${layer}`);
    }
  }

  it('follow the quantized model’s own continuation, with the experts of the whole pass', async () => {
    const [token = 0] = tokenIds;
    const position = promptIds.length;
    begin();
    announce(position, token, { rows: 0, nextRows: 4 });
    await drafted(position + 4);
    await expected.step(token);
    for (let row = 1; row < 4; row += 1) {
      const { tokenId, passPosition, branch } = draftOf(position + row) ?? {};
      assert.deepEqual(
        { tokenId, passPosition, branch },
        { tokenId: expected.next, passPosition: position, branch: 0 },
      );
      await expected.step(expected.next);
    }
    assert.deepEqual(
      [draftOf(position + 4)?.tokenId, draftOf(position + 4)?.passPosition],
      [expected.next, position + 4],
    );
    assertPredicted(position, 4);
    assert.ok((draftOf(position + 1)?.runUs ?? 0) > 0);
    assert.deepEqual(main.restarts, []);
  });

  it('are drawn with main’s random numbers', async () => {
    const sampling = { temperature: 4, topK: 0, topP: 0, minP: 0, repetitionPenalty: 1.2, seed: 5 };
    const [token = 0] = tokenIds;
    const position = promptIds.length;
    begin({ sampling });
    announce(position, token, { rows: 0, nextRows: 6 });
    await drafted(position + 6);
    const history = [...promptIds, token];
    const greedy: number[] = [];
    const sampler = new TokenSampler({
      sampling: resolveSampling(sampling, () => 0),
      promptTokens: promptIds.length,
      maxPositions: position + 40,
      constraint: null,
    });
    for (let row = 1; row <= 6; row += 1) {
      const logits = await expected.sequence.decode(history.at(-1) ?? 0);
      greedy.push(
        chooseToken(
          logits,
          position + row,
          resolveSampling(null, () => 0),
        ),
      );
      history.push(runAtOnce(sampler.sample(logits, history)));
      assert.equal(draftOf(position + row)?.tokenId, history.at(-1));
    }
    assert.notDeepEqual(history.slice(-6), greedy, 'else this shows nothing');
  });

  it('run ahead of main’s tokens, and start again where main chose another token', async () => {
    const [token = 0] = tokenIds;
    const position = promptIds.length;
    begin({ optimistic: true });
    announce(position, token);
    await drafted(position + 2);
    await expected.step(token);
    const other = (expected.next + 17) % local.shape.vocabSize;
    announce(position + 1, other, { branch: 1 });
    await waitUntil('main’s token is taken', () => draftOf(position + 2)?.branch === 1);
    assert.deepEqual(
      main.restarts.map((restart) => [restart.position, restart.epoch]),
      [[position + 1, EPOCH]],
    );
    await expected.step(other);
    assert.equal(draftOf(position + 2)?.tokenId, expected.next);
    assertPredicted(position + 1, 1);
    for (const worker of workers) {
      await waitUntil('the worker has got the message', () => worker.restarts.length > 0);
    }
  });

  it('end on main’s tokens wherever those arrive, in a pass or between two', async () => {
    begin({ optimistic: true });
    const sent: number[] = [];
    for (let index = 0; index < 24; index += 1) {
      const position = promptIds.length + index;
      // Every third is what the shadow expects; the others catch it on a wrong guess at different times, every fourth when it is
      // surely ahead.
      const token = index % 3 === 0 ? expected.next : (expected.next + 17) % local.shape.vocabSize;
      announce(position, token, { branch: index });
      sent.push(token);
      await expected.step(token);
      if (index % 4 === 3) await drafted(position + 2);
      for (let turns = 0; turns < index % 4; turns += 1) await new Promise((resolve) => setImmediate(resolve));
    }
    const last = promptIds.length + sent.length - 1;
    await waitUntil('the last position has been run', () => draftOf(last + 1)?.branch === 23);
    assert.equal(draftOf(last + 1)?.tokenId, expected.next);
    assertPredicted(last, 1);
    assert.ok(main.restarts.length > 0);
  });

  it('deal experts to all workers, and send main the places', async () => {
    const [token = 0] = tokenIds;
    const position = promptIds.length;
    begin({ spread: true });
    announce(position, token, { rows: 0, nextRows: 3 });
    await drafted(position + 3);
    const placement = placementOf(workers, local.shape, EPOCH);
    for (let layer = 0; layer < local.shape.expertLayers; layer += 1) {
      const latest = main.predictions.findLast((prediction) => prediction.layer === layer);
      assert.ok(latest?.workers !== undefined && latest.workers.length === latest.experts.length);
      const assignment = assignmentOf(placement, latest);
      for (const worker of workers) {
        const own = [...assignment].filter(([, id]) => id === worker.id).map(([expert]) => expert);
        const last = () => worker.predictions.findLast((prediction) => prediction.layer === layer)?.experts ?? [];
        await waitUntil('the worker has its part', () => last().join() === own.join());
      }
    }
  });
});
