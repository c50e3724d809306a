import assert from 'node:assert/strict';
import { PredictionPost } from '../../main-node/decode/prediction-post.js';
import { AnnouncedPasses } from '../../main-node/pass/announcements.js';
import {
  MAX_REMEMBERED_PREDICTIONS,
  MAX_REMEMBERED_CHOICES,
  SequencePredictions,
} from '../../main-node/decode/sequence-predictions.js';
import { assignPredictedExperts } from '../../shared/decisions/placement/assign-predicted-experts.js';
import { planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import { RecordingWorkers } from './recording-workers.js';
import { plainPrediction, restartAt } from './wire-messages.js';
import type { Predict, Release } from '../../shared/wire/messages.js';
import { collectionSizes } from '../../shared/base/runtime/collection-sizes.js';
import { RUNTIME } from '../wall.js';

const LAYERS = 2;
const PROMPT_TOKENS = 10;

const predicted = (position: number, layer: number, experts: number[], epoch = 1): Predict =>
  plainPrediction({ sequence: 7, position, layer, experts, epoch });

const NO_FEED = { dropped: () => undefined, forget: () => undefined, prefixKept: () => true, isFedBy: () => true };
const NO_DRAFTS = { arrive: () => undefined, restart: () => undefined, shadowLost: () => undefined };
const FED = { id: 's', alive: true, backlogBytes: 0, send: () => undefined };

describe('main: predictions of a sequence', () => {
  it('leave a bounded number of stored choices behind when they never arrive, the newest', () => {
    const predictions = new SequencePredictions(PROMPT_TOKENS, 1, RUNTIME);
    const last = PROMPT_TOKENS + MAX_REMEMBERED_CHOICES;
    for (let position = PROMPT_TOKENS; position <= last; position++) predictions.decide(position, 0, [1]);
    assert.equal(collectionSizes([predictions]).get('SequencePredictions.choices'), MAX_REMEMBERED_CHOICES);
    for (const position of [PROMPT_TOKENS, last]) assert.equal(predictions.arrive(predicted(position, 0, [1])), 'late');
    assert.equal(predictions.metrics().late, 1, 'of the first one nothing is remembered');
  });

  it('are given out at their layer and counted per OD-MoE equations 2 and 3', () => {
    const predictions = new SequencePredictions(PROMPT_TOKENS, LAYERS, RUNTIME);
    assert.equal(predictions.arrive(predicted(10, 0, [1, 2])), 'remembered');
    assert.equal(predictions.arrive(predicted(10, 1, [3, 4])), 'remembered');
    assert.deepEqual(predictions.decide(10, 0, [2, 1])?.experts, [1, 2]);
    assert.deepEqual(predictions.decide(10, 1, [4, 5])?.experts, [3, 4]);
    assert.equal(predictions.decide(11, 0, [1, 2]), null);
    assert.equal(predictions.decide(11, 1, [1, 2]), null);
    assert.deepEqual(predictions.metrics(), {
      recall: 3 / 8,
      activated: 8,
      predictedCorrectly: 3,
      late: 0,
      correctByIteration: [3, 0],
      activatedByIteration: [4, 4],
    });
  });

  it('count by content when they arrive late, once', () => {
    const predictions = new SequencePredictions(PROMPT_TOKENS, LAYERS, RUNTIME);
    assert.equal(predictions.decide(10, 0, [1, 2]), null);
    assert.equal(predictions.arrive(predicted(10, 0, [2, 3])), 'late');
    assert.equal(predictions.arrive(predicted(10, 0, [1, 2])), 'late');
    const { late, predictedCorrectly, activated } = predictions.metrics();
    assert.deepEqual({ late, predictedCorrectly, activated }, { late: 1, predictedCorrectly: 1, activated: 2 });
  });

  it('replace an earlier one for the same layer while there is time', () => {
    const predictions = new SequencePredictions(PROMPT_TOKENS, LAYERS, RUNTIME);
    predictions.arrive(predicted(10, 0, [1, 2]));
    predictions.arrive(predicted(10, 0, [3, 4]));
    assert.deepEqual(predictions.decide(10, 0, [3, 4])?.experts, [3, 4]);
    assert.equal(predictions.metrics().predictedCorrectly, 2);
  });

  it('are awaited at the end until the last decided layer is predicted, or until the limit', async () => {
    const predictions = new SequencePredictions(PROMPT_TOKENS, LAYERS, RUNTIME);
    predictions.decide(10, 0, [1, 2]);
    predictions.decide(10, 1, [3, 4]);
    let over = false;
    const waiting = predictions.waitUntilCaughtUp(60_000).then(() => (over = true));
    predictions.arrive(predicted(10, 0, [1, 2]));
    await Promise.resolve();
    assert.equal(over, false);
    predictions.arrive(predicted(10, 1, [3, 4]));
    await waiting;
    assert.equal(predictions.metrics().recall, 1);
    await predictions.waitUntilCaughtUp(60_000);
    predictions.decide(11, 0, [1, 2]);
    await predictions.waitUntilCaughtUp(1);
  });

  it('belong to passes that begin at any position, and those of passes that never began are forgotten', () => {
    const predictions = new SequencePredictions(PROMPT_TOKENS, LAYERS, RUNTIME);
    predictions.arrive(predicted(10, 0, [1, 2]));
    predictions.arrive(predicted(12, 0, [1, 2]));
    predictions.arrive(predicted(13, 0, [1, 2, 3]));
    predictions.decide(10, 0, [1, 2]);
    predictions.decide(10, 1, [1, 2]);
    assert.deepEqual(predictions.decide(13, 0, [1, 2, 4])?.experts, [1, 2, 3]);
    predictions.decide(13, 1, [5, 6, 7]);
    assert.equal(predictions.arrive(predicted(12, 0, [1, 2])), 'late');
    predictions.arrive(predicted(13, 1, [6, 7]));
    assert.deepEqual(predictions.metrics().activatedByIteration, [4, 6]);
    assert.deepEqual(predictions.metrics().correctByIteration, [2, 4]);
    assert.equal(predictions.metrics().late, 1, 'a pass that never began was not predicted late');
  });

  it('are void from the position where shadow starts again', () => {
    const predictions = new SequencePredictions(PROMPT_TOKENS, LAYERS, RUNTIME);
    for (const position of [10, 11, 12]) predictions.arrive(predicted(position, 0, [1, 2]));
    predictions.restart(11);
    assert.deepEqual(predictions.decide(10, 0, [1, 2])?.experts, [1, 2]);
    assert.equal(predictions.decide(11, 0, [1, 2]), null);
  });

  it('are announced for the layers behind one, once the last has arrived', () => {
    const predictions = new SequencePredictions(PROMPT_TOKENS, LAYERS, RUNTIME);
    predictions.arrive(predicted(10, 0, [1, 2]));
    assert.equal(predictions.upcoming(10, 0), null);
    predictions.arrive(predicted(10, 1, [3, 4]));
    assert.deepEqual(
      predictions.upcoming(10, 0)?.map(({ experts }) => experts),
      [[3, 4]],
    );
    assert.deepEqual(predictions.upcoming(10, 1), []);
  });

  it('are not stored for the prompt, and are bounded', () => {
    const predictions = new SequencePredictions(PROMPT_TOKENS, LAYERS, RUNTIME);
    assert.equal(predictions.arrive(predicted(PROMPT_TOKENS - 1, 0, [1])), 'ignored');
    for (let index = 0; index < MAX_REMEMBERED_PREDICTIONS; index++) {
      assert.equal(predictions.arrive(predicted(PROMPT_TOKENS + index, 0, [1])), 'remembered');
    }
    assert.equal(predictions.arrive(predicted(PROMPT_TOKENS + MAX_REMEMBERED_PREDICTIONS, 0, [1])), 'ignored');
  });
});

describe('main: the receiver of predictions', () => {
  const placement = planPlacement({
    epoch: 1,
    workers: ['a', 'b', 'c', 'd'].map((id) => ({ id, address: '', slots: 1 })),
    layers: LAYERS,
    experts: 8,
    expertsPerToken: 2,
    groupSize: 'auto',
  });

  function postWithReleases(): { post: PredictionPost; releases: [string, Release][]; workers: RecordingWorkers } {
    const workers = new RecordingWorkers(placement);
    return { post: new PredictionPost(workers, new AnnouncedPasses()), releases: workers.releases, workers: workers };
  }

  it('releases a late prediction at the workers that received it', () => {
    const { post, releases } = postWithReleases();
    const predictions = new SequencePredictions(PROMPT_TOKENS, LAYERS, RUNTIME);
    post.open(7, { predictions, feed: NO_FEED, drafts: NO_DRAFTS });
    predictions.decide(10, 0, [1, 2]);
    post.arrive(predicted(10, 0, [2, 3]), FED);
    const workers = assignPredictedExperts(placement, 0, [2, 3]);
    assert.deepEqual(new Map(releases.map(([id, release]) => [release.experts[0], id])), workers);
    assert.deepEqual(
      releases.map(([, { pass, rows, layer, epoch }]) => [pass.sequence, pass.position, rows[0]?.rows, layer, epoch]),
      [
        [7, 10, 1, 0, 1],
        [7, 10, 1, 0, 1],
      ],
    );
  });

  it('releases nothing of an older epoch, and nothing that arrives in time', () => {
    const { post, releases } = postWithReleases();
    const predictions = new SequencePredictions(PROMPT_TOKENS, LAYERS, RUNTIME);
    post.open(7, { predictions, feed: NO_FEED, drafts: NO_DRAFTS });
    predictions.decide(10, 0, [1, 2]);
    post.arrive(predicted(10, 0, [2, 3], 0), FED);
    post.arrive(predicted(10, 1, [2, 3]), FED);
    assert.deepEqual(releases, []);
  });

  it('releases a late prediction at the workers that it names, and nothing where it names unknown workers', () => {
    const { post, releases } = postWithReleases();
    const predictions = new SequencePredictions(PROMPT_TOKENS, LAYERS, RUNTIME);
    post.open(7, { predictions, feed: NO_FEED, drafts: NO_DRAFTS });
    predictions.decide(10, 0, [1, 2]);
    post.arrive({ ...predicted(10, 0, [2, 3]), workers: [3, 1] }, FED);
    post.arrive({ ...predicted(10, 0, [2, 3]), workers: [3, 4] }, FED);
    assert.deepEqual(
      releases.map(([id, { experts }]) => [id, experts]),
      [
        ['d', [2]],
        ['b', [3]],
      ],
    );
  });

  it('takes messages only from the shadow that main feeds, and releases predictions from another one', () => {
    const { post, releases } = postWithReleases();
    const heard: string[] = [];
    const other = { ...FED };
    post.open(7, {
      predictions: {
        arrive: ({ layer }) => {
          heard.push(`layer ${layer}`);
          return 'remembered';
        },
        restart: (position) => void heard.push(`predictions ${position}`),
      },
      feed: {
        prefixKept: () => true,
        dropped: () => void heard.push('dropped'),
        forget: () => void heard.push('forgotten'),
        isFedBy: (shadow) => shadow === FED,
      },
      drafts: {
        arrive: ({ tokenId }) => void heard.push(`draft ${tokenId}`),
        restart: (position) => void heard.push(`drafts ${position}`),
        shadowLost: () => void heard.push('woken'),
      },
    });
    const draft = { epoch: 1, sequence: 7, position: 11, tokenId: 5, branch: 0, passPosition: 10, runUs: 1 };
    const restart = restartAt({ sequence: 7, position: 10 });
    post.restart(restart, other);
    post.draft(draft, other);
    post.dropped(7, other);
    post.lost(other);
    post.drained(other);
    assert.deepEqual([heard, releases], [[], []]);
    post.arrive({ ...predicted(10, 1, [2, 3]), workers: [3, 1] }, other);
    assert.deepEqual(
      releases.map(([id, { experts }]) => [id, experts]),
      [
        ['d', [2]],
        ['b', [3]],
      ],
    );
    post.arrive(predicted(10, 1, [2, 3]), FED);
    post.restart(restart, FED);
    post.draft(draft, FED);
    post.lost(FED);
    assert.deepEqual(heard, ['layer 1', 'predictions 10', 'drafts 10', 'draft 5', 'dropped', 'woken']);
    post.drained(FED);
    assert.deepEqual(heard.slice(6), ['forgotten', 'woken'], 'it is made to drop the sequence');
    assert.equal(releases.length, 2);
  });

  it('informs every worker when a sequence has ended', () => {
    const { post, workers: workers } = postWithReleases();
    post.open(7, {
      predictions: new SequencePredictions(PROMPT_TOKENS, LAYERS, RUNTIME),
      feed: NO_FEED,
      drafts: NO_DRAFTS,
    });
    assert.equal(post.openCount, 1);
    post.close(7);
    assert.deepEqual(
      workers.ends,
      ['a', 'b', 'c', 'd'].map((id) => [id, 7]),
    );
    assert.equal(post.openCount, 0);
  });
});
