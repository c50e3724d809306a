import assert from 'node:assert/strict';
import { progressLines } from '../../cli/output/progress-lines.js';

describe('progress where no terminal shows it', () => {
  it('is one line a minute, and none of work that takes less', () => {
    const said: string[] = [];
    let nowMs = 1000;
    const lines = progressLines(
      'pulling',
      (words) => said.push(words),
      () => nowMs,
    );
    for (let second = 0; second < 150; second += 1) {
      lines.update(second * 1e6, 200e6);
      assert.equal(said.length, Math.floor(second / 60), `after ${second} s`);
      nowMs += 1000;
    }
    lines.stop();
    assert.deepEqual(said, ['pulling: 60.0 MB of 200 MB (30 %)', 'pulling: 120 MB of 200 MB (60 %)']);
  });

  it('says nothing of shares where all is nothing', () => {
    const said: string[] = [];
    let nowMs = 0;
    const lines = progressLines(
      'packing',
      (words) => said.push(words),
      () => nowMs,
    );
    nowMs = 60_000;
    lines.update(0, 0);
    assert.deepEqual(said, ['packing: 0 B of 0 B']);
  });
});
