import assert from 'node:assert/strict';
import { LayerWaits } from '../../main-node/pass/layer-waits.js';
import type { PassObserver } from '../../main-node/pass/pass-observer.js';
import { answerRows, memberOf, PassCluster, promptRows } from './pass-cluster.js';
import { plainPrediction } from './wire-messages.js';
import type { Predict } from '../../shared/wire/messages.js';

/** A prediction that shadow has sent to main alone. */
function predictForMain(sequence: number, position: number, layer: number, experts: number[]): Predict {
  return { ...plainPrediction({ sequence, position, layer, experts }), mainAnnounces: true };
}

/** This number of rows is expected to use 15 of 16 experts. One row less is expected to use 7 of 8. */
const NEARLY_ALL_ROWS = 4;

describe('main: passes of prompts', () => {
  async function prefill(tokens: number, prefillOverlap: boolean, passRows = NEARLY_ALL_ROWS) {
    const cluster = new PassCluster({ engine: { prefillOverlap, miniBatchRows: 2 } });
    const member = memberOf(7);
    for (let start = 0; start < tokens; start += passRows) {
      const rows = (from: number) => [promptRows(member, from, Math.min(passRows, tokens - from))];
      await cluster.run(rows(start), () => (start + passRows < tokens ? rows(start + passRows) : null));
    }
    return { cluster, workers: cluster.workers, member };
  }

  it('announce each layer as they execute it, those of the next pass too, and nothing behind the last', async () => {
    const { workers, member } = await prefill(9, true);
    const announced = workers.predictions.map(([, { pass, rows, layer }]) => JSON.stringify([pass, rows, layer]));
    assert.deepEqual(
      [...new Set(announced)],
      [0, 4].flatMap((position) =>
        [0, 1].map((layer) => JSON.stringify([{ sequence: 7, position }, [{ sequence: 7, position, rows: 4 }], layer])),
      ),
    );
    const [first] = workers.works.filter(([, { pass }]) => pass.position === 4);
    const aheadOf = workers.predictions.findIndex(([, { pass }]) => pass.position === 4);
    assert.ok(first !== undefined && aheadOf >= 0 && aheadOf < workers.predictions.length - 1);
    assert.deepEqual(
      member.written.filter((text) => text !== 'ended'),
      [4, 8, 9].flatMap((end) => [`0 to ${end}`, `1 to ${end}`, `all to ${end}`]),
    );
  });

  it('release announced experts that no row needs, at the workers that received them', async () => {
    const { workers } = await prefill(4, true);
    const unused = workers.announcedExperts.filter((expert) => !workers.asked.includes(expert)).sort();
    assert.ok(unused.length > 0);
    assert.deepEqual([...workers.releasedExperts].sort(), unused);
  });

  it('announce experts before their use, unless the pass is expected to use nearly all experts', async () => {
    const { workers } = await prefill(6, true, NEARLY_ALL_ROWS - 1);
    assert.ok(workers.asked.length > 0);
    assert.deepEqual([...workers.announcedExperts].sort(), [...new Set(workers.asked)].sort());
    assert.deepEqual([workers.releases, workers.unannounced], [[], []]);
  });

  it('mark the last message for an expert', async () => {
    for (const overlap of [true, false]) {
      const { workers } = await prefill(3, overlap);
      const messages = workers.works.flatMap(([id, { layer, experts }]) =>
        experts.map(({ expert, last }) => ({ key: `${id} ${layer} ${expert}`, last })),
      );
      for (const [index, { key, last }] of messages.entries()) {
        const followed = messages.slice(index + 1).some((later) => later.key === key);
        assert.equal(last, !followed, key);
      }
    }
  });

  it('announce nothing when overlap is off', async () => {
    const { workers } = await prefill(7, false);
    assert.deepEqual([workers.predictions, workers.releases], [[], []]);
  });

  it('use the layers announced ahead for them, and release those where another pass comes', async () => {
    for (const comes of [true, false]) {
      const cluster = new PassCluster();
      const [member, other] = [memberOf(7), memberOf(8)];
      await cluster.run([promptRows(member, 0, 4)], () => [promptRows(member, 4, 4)]);
      const { workers } = cluster;
      const ahead = workers.announcedExperts.filter((text) => text.includes(' 4/0 '));
      assert.equal(ahead.length, 4);
      const released = workers.releases.length;
      await cluster.run(comes ? [promptRows(member, 4, 4)] : [answerRows(other, 3, [1]), promptRows(member, 4, 1)]);
      const ofAhead = workers.releasedExperts.slice(released).filter((text) => text.includes(' 4/0 '));
      assert.deepEqual(ofAhead.length, comes ? 2 : 4);
      assert.deepEqual(
        workers.announcedExperts.filter((text) => text.includes(' 4/0 ')),
        ahead,
      );
    }
  });
});

describe('main: passes of several sequences', () => {
  it('ask each worker once a layer for the union of the experts, and give each sequence its logits', async () => {
    const cluster = new PassCluster({ experts: 8, router: (token) => [token, token + 1] });
    const [one, other, prompt] = [memberOf(7), memberOf(8), memberOf(9)];
    const logits = await cluster.run([
      answerRows(one, 10, [1, 2]),
      answerRows(other, 5, [3]),
      { ...promptRows(prompt, 0, 2), logitsFrom: 1 },
    ]);
    assert.deepEqual(
      logits.map((rows) => rows.map((row) => row[0])),
      [[1, 2], [3], [1]],
    );
    for (const layer of [0, 1]) {
      const works = cluster.workers.works.filter(([, work]) => work.layer === layer);
      assert.equal(new Set(works.map(([id]) => id)).size, works.length);
      assert.deepEqual(works.flatMap(([, { experts }]) => experts.map(({ expert }) => expert)).sort(), [0, 1, 2, 3, 4]);
      assert.ok(works.every(([, { pass }]) => pass.sequence === 7 && pass.position === 10));
    }
    assert.deepEqual(
      [one.written, prompt.written],
      [
        ['0 to 12', '1 to 12', 'all to 12', 'ended'],
        ['0 to 2', '1 to 2', 'all to 2'],
      ],
    );
  });

  it('cost as many messages and loads for eight equal rows as for one', async () => {
    const cost = async (sequences: number, fed: boolean): Promise<number[]> => {
      const cluster = new PassCluster({ experts: 8, router: (token) => [token, token + 1] });
      const members = Array.from({ length: sequences }, (_, index) => memberOf(7 + index, { fed }));
      await cluster.run(members.map((member) => answerRows(member, 10, [1])));
      const { works, asked, announcedExperts } = cluster.workers;
      return [works.length, asked.length, announcedExperts.length];
    };
    for (const fed of [true, false]) assert.deepEqual(await cost(8, fed), await cost(1, fed));
  });

  it('announce experts where nobody predicts and nearly all experts will be used', async () => {
    const run = async (fed: boolean): Promise<PassCluster> => {
      const cluster = new PassCluster({ experts: 8, router: (token) => [token % 8, (token + 1) % 8] });
      await cluster.run(Array.from({ length: 8 }, (_, index) => answerRows(memberOf(7 + index, { fed }), 10, [index])));
      return cluster;
    };
    const { workers } = await run(false);
    assert.equal(workers.announcedExperts.length, 16);
    assert.deepEqual(workers.unannounced, []);
    assert.deepEqual((await run(true)).workers.predictions, []);
  });

  it('count reloads for the sequences whose rows chose the expert, and stalls for all', async () => {
    const cluster = new PassCluster({ experts: 8, router: (token) => [token, 7] });
    const [one, other, prompt] = [memberOf(7), memberOf(8), memberOf(9)];
    await cluster.run([answerRows(one, 10, [1]), answerRows(other, 5, [2]), promptRows(prompt, 0, 1)]);
    assert.deepEqual(
      [one, other, prompt].map(({ counters }) => counters.reloads),
      [4, 4, 0],
    );
    assert.deepEqual(
      [one, other, prompt].map(({ counters }) => counters.ioStallUs),
      [2000, 2000, 2000],
    );
  });

  it('finish with the rows of a client that has gone, and end when no client is left', async () => {
    const leavers = [new AbortController(), new AbortController()];
    let abort = 1;
    const cluster = new PassCluster({
      onAttend: () => {
        for (const leaver of leavers.slice(0, abort)) leaver.abort();
      },
    });
    const members = leavers.map(({ signal }, index) => memberOf(7 + index, { signal }));
    const rows = members.map((member) => answerRows(member, 10, [1]));
    assert.equal((await cluster.run(rows)).length, 2);
    abort = 2;
    await assert.rejects(cluster.run(rows), { code: 'CANCELLED' });
  });

  it('release the experts announced ahead where they fail', async () => {
    const cluster = new PassCluster({
      onAttend: (layer) => {
        if (layer === 1) throw new Error('the device gives no memory');
      },
    });
    const [one, other] = [memberOf(7), memberOf(8)];
    one.predictions.arrive(predictForMain(7, 10, 1, [2]));
    await assert.rejects(cluster.run([answerRows(one, 10, [1]), answerRows(other, 5, [1])]));
    assert.deepEqual(cluster.workers.releasedExperts, cluster.workers.announcedExperts);
    assert.equal(cluster.workers.announcedExperts.length, 1);
  });

  it('announce the first layer ahead to workers once, and release it where it is not chosen', async () => {
    const cluster = new PassCluster({ experts: 8, engine: { firstLayerAhead: true } });
    const member = memberOf(7);
    await cluster.run([answerRows(member, 10, [1])]);
    member.predictions.arrive(predictForMain(7, 11, 0, [0, 5]));
    await cluster.run([answerRows(member, 11, [1])]);
    const { announcedExperts, releasedExperts } = cluster.workers;
    const ofFirst = announcedExperts.filter((text) => text.includes(' 11/0 ')).map((text) => text.slice(3));
    assert.deepEqual(
      ofFirst.sort(),
      [0, 1, 2, 3, 5].map((expert) => `11/0 ${expert}`),
    );
    assert.deepEqual(releasedExperts.map((text) => text.slice(3)).sort(), ['11/0 2', '11/0 3', '11/0 5']);
  });

  it('release the announced first layer where the next pass is a joint one', async () => {
    const cluster = new PassCluster({ experts: 8, engine: { firstLayerAhead: true } });
    const [member, other] = [memberOf(7), memberOf(8)];
    await cluster.run([answerRows(member, 10, [1])]);
    const announced = cluster.workers.announcedExperts.filter((text) => text.includes(' 11/0 '));
    assert.ok(announced.length > 0);
    await cluster.run([answerRows(other, 5, [1]), answerRows(member, 11, [1])]);
    assert.deepEqual(
      cluster.workers.releasedExperts.filter((text) => text.includes(' 11/0 ')).sort(),
      announced.sort(),
    );
  });

  it('count predictions for the rows of the answer alone, sequence by sequence', async () => {
    const cluster = new PassCluster({ experts: 8, router: (token) => [token, 7] });
    const again = memberOf(7, { promptTokens: 8 });
    const other = memberOf(8);
    again.predictions.arrive(predictForMain(7, 10, 0, [3, 1]));
    await cluster.run([
      { member: again, position: 8, tokenIds: [1, 2, 3], decodeFrom: 2, logitsFrom: 2 },
      answerRows(other, 5, [4]),
    ]);
    const { activated, predictedCorrectly } = again.predictions.metrics();
    assert.deepEqual([activated, predictedCorrectly], [4, 1]);
  });

  it('count for each layer how long an answer has waited for it, and nothing where a prompt runs', async () => {
    const layerWaits = new LayerWaits(2);
    const cluster = new PassCluster({ engine: { layerWaits } });
    const passes = (): number[] => layerWaits.report([]).layerWaits.map((layer) => layer.passes);
    const member = memberOf(7);
    await cluster.run([promptRows(member, 0, 4)]);
    assert.deepEqual(passes(), []);
    for (const position of [4, 5]) await cluster.run([answerRows(member, position, [0])]);
    assert.deepEqual(passes(), [2, 2]);
  });

  it('inform an observer, with the way in which each expert was predicted', async () => {
    const seen: string[] = [];
    const observer: PassObserver = {
      begin: (rows) => {
        seen.push(`begin ${rows.length}`);
        return {
          layerBegun: (layer) => void seen.push(`layer ${layer}`),
          routed: (_, experts) => {
            for (const { expert, rows: count, outcome, workerIds } of experts)
              seen.push(`${expert} of ${count} ${outcome} ${workerIds.length}`);
          },
          sent: (_, __, experts) => void seen.push(`sent ${experts.join()}`),
          received: (_, { work }) => void seen.push(`received ${work.expert}`),
          answered: (layer) => void seen.push(`answered ${layer}`),
          layerEnded: (layer) => void seen.push(`summed ${layer}`),
          ended: (failed) => void seen.push(`ended ${failed}`),
        };
      },
      predictionArrived: () => undefined,
      sequenceEnded: () => undefined,
    };
    const cluster = new PassCluster({ layers: 1, workers: 1, experts: 8, engine: { observer } });
    const member = memberOf(7, { layers: 1 });
    member.predictions.arrive(predictForMain(7, 10, 0, [1]));
    await cluster.run([answerRows(member, 10, [0]), promptRows(memberOf(8, { fed: false, layers: 1 }), 0, 1)]);
    assert.deepEqual(seen, [
      'begin 2',
      'layer 0',
      '0 of 2 mispredicted 1',
      '1 of 2 predicted 1',
      'sent 0,1',
      'received 0',
      'received 1',
      'answered 0',
      'summed 0',
      'ended false',
    ]);
  });
});
