import assert from 'node:assert/strict';
import { MapsTime, timeInHop } from '../../main-node/pass/maps-time.js';
import { SHORT_PASS_ROWS } from '../../main-node/pass/reusable-passes.js';

const LAYERS = 48;

/** Maps on a clock, under hops of `hopMs`. */
function mapsUnder(hopMs: number): { time: MapsTime; run: (rows: number, takesMs: number) => string } {
  let nowMs = 0;
  const time = new MapsTime(
    () => nowMs,
    () => hopMs,
  );
  return { time, run: (rows, takesMs) => time.runHere(rows, () => ((nowMs += takesMs), 'done')) };
}

describe('main: the time of trained maps', () => {
  it('is up to a quarter of a hop, and unlimited as long as none is measured', () => {
    assert.deepEqual([0.4, 2, 0].map(timeInHop), [0.1, 0.5, Infinity]);
    const { time, run } = mapsUnder(0.4);
    run(1, 0.1);
    assert.ok(time.mayRunHere(1));
    run(2, 0.11);
    assert.ok(!time.mayRunHere(2));
  });

  it('is measured for each number of rows by itself', () => {
    const { time, run } = mapsUnder(1);
    assert.ok(time.mayRunHere(1));
    assert.equal(run(1, 9), 'done');
    assert.ok(!time.mayRunHere(1));
    assert.ok(time.mayRunHere(2), 'two rows have not been measured');
    assert.ok(!time.mayRunHere(SHORT_PASS_ROWS + 1), 'many rows never run here');
    // Layers with other numbers of rows do not count.
    run(2, 9);
    for (let layer = 0; layer < 34; layer += 1) assert.ok(!time.mayRunHere(2));
    assert.ok(!time.mayRunHere(1));
  });

  it('lets maps run again within a pass after one that had to wait, and in each layer from then on', () => {
    const { time, run } = mapsUnder(1);
    for (const slowMs of [2, 9, 1000]) {
      for (let times = 0; times < 20; times += 1) run(1, slowMs);
      let layers = 1;
      while (!time.mayRunHere(1)) layers += 1;
      assert.ok(layers <= LAYERS + 16, `${layers} layers after ${slowMs} ms`);
      run(1, 0.1);
      assert.ok(time.mayRunHere(1));
      run(1, slowMs);
      assert.ok(time.mayRunHere(1), 'one of the last ones was fast');
    }
  });

  it('bounds what maps that stay slow take of the thread, over many layers', () => {
    const { time, run } = mapsUnder(1);
    let tookMs = 0;
    for (let layer = 0; layer < 4800; layer += 1) {
      if (!time.mayRunHere(1)) continue;
      run(1, 3);
      tookMs += 3;
    }
    assert.ok(tookMs <= timeInHop(1) * 4800 + 3, `${tookMs} ms`);
  });

  it('stays with main where the hops take long', () => {
    let [nowMs, hopMs] = [0, 1];
    const time = new MapsTime(
      () => nowMs,
      () => hopMs,
    );
    time.runHere(1, () => (nowMs += 1));
    assert.ok(!time.mayRunHere(1));
    hopMs = 4;
    assert.ok(time.mayRunHere(1));
  });
});
