import assert from 'node:assert/strict';
import {
  acceptedWords,
  waitingFacts,
  waitingWords,
  wrongCodeWords,
} from '../../dashboard/machines-view/machines-words.js';
import { formatDay } from '../../dashboard/format/quantities.js';

describe('the words of the page about machines', () => {
  it('count those that wait', () => {
    assert.deepEqual([0, 1, 2].map(waitingWords), ['', '1 machine waits to be let in', '2 machines wait to be let in']);
  });

  it('say what wrong codes do, above all before the last one', () => {
    assert.equal(wrongCodeWords(3), '3 wrong codes send every waiting machine away.');
    assert.equal(wrongCodeWords(1), 'One more wrong code sends every waiting machine away.');
  });

  it('leave out what a machine does not tell', () => {
    const machine = { device: '', address: '10.0.0.7', waitedMs: 65_000 };
    assert.deepEqual(waitingFacts(machine), ['10.0.0.7', 'has waited 1 min 5 s']);
    const accepted = { id: 'nano', role: 'worker' as const, device: '', address: '10.0.0.7', words: 'a b c d' };
    assert.match(acceptedWords(accepted), /^nano \(worker, 10\.0\.0\.7\) is in the cluster\..*the words "a b c d"/);
  });

  it('name a day as a calendar does', () => {
    assert.equal(formatDay(Date.UTC(2026, 10, 25, 11)), '25 Nov 2026');
    assert.equal(formatDay(Date.UTC(1970, 0, 1, 11)), '1 Jan 1970');
  });
});
