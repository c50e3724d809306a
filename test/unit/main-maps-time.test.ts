import assert from 'node:assert/strict';
import { fitsIntoHop, MapsTime } from '../../main-node/pass/maps-time.js';
import { SHORT_PASS_ROWS } from '../../main-node/pass/reusable-passes.js';

describe('main: the time of trained maps', () => {
  it('fits into a hop up to a quarter of it, and always as long as one of both is not measured', () => {
    assert.deepEqual(
      [
        [0.1, 0.4],
        [0.11, 0.4],
        [5, 0],
        [0, 5],
      ].map(([takenMs = 0, hopMs = 0]) => fitsIntoHop(takenMs, hopMs)),
      [true, false, true, true],
    );
  });

  it('is measured for each number of rows by itself, and again after a while', () => {
    let nowMs = 0;
    const time = new MapsTime(
      () => nowMs,
      () => 1,
    );
    const run = (rows: number, takesMs: number): string => time.runHere(rows, () => ((nowMs += takesMs), 'done'));
    assert.ok(time.mayRunHere(1));
    assert.equal(run(1, 9), 'done');
    assert.ok(!time.mayRunHere(1));
    assert.ok(time.mayRunHere(2), 'two rows have not been measured');
    assert.ok(!time.mayRunHere(SHORT_PASS_ROWS + 1), 'many rows never run here');
    let tries = 1;
    while (!time.mayRunHere(1)) tries += 1;
    assert.ok(tries > 10 && tries < 100);
    for (let times = 0; times < 1000; times += 1) run(1, 0.1);
    assert.ok(time.mayRunHere(1), 'it has become fast');
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
