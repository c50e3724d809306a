import assert from 'node:assert/strict';
import { MainWords, PATIENCE_MS, waitingWords } from '../../engine/daemon/say-main.js';
import { testSettings } from '../integration/harness/test-settings.js';

const WAITS = 'it waits';

/** The lines that are said, by the seconds in which main is there. */
function linesOf(presence: string): string[] {
  const words = new MainWords(WAITS, 0);
  return [...presence].flatMap((mark, second) => words.look(mark === '+', second * 1000) ?? []);
}

describe('what a daemon says of main', () => {
  it('is nothing while main is there, or is away for a short time', () => {
    assert.deepEqual(linesOf('----++++'), []);
    assert.deepEqual(linesOf('++++----+++----+'), []);
    assert.equal(PATIENCE_MS, 5000);
  });

  it('is one line where main does not come, and one when it is there', () => {
    assert.deepEqual(linesOf('--------------'), ['no main uses it yet: it waits']);
    assert.deepEqual(linesOf('--------++----------+'), [
      'no main uses it yet: it waits',
      'main uses it',
      'main is gone: it waits',
      'main uses it',
    ]);
  });

  it('says how main finds the daemon', () => {
    const words = (changes: Parameters<typeof testSettings>[2]): string =>
      waitingWords(testSettings('worker', 'pack', { cluster: 'home', ...changes }));
    assert.equal(words({ mainAddress: '10.0.0.1:7600' }), 'it waits for main of "home" at 10.0.0.1:7600');
    const end = "; or give main's address by --main HOST:PORT";
    const mdns = { mainAddress: null, provider: 'mdns' } as const;
    assert.equal(words(mdns), `it waits for main of "home", which finds it by mDNS${end}`);
    assert.match(words({ mainAddress: null, provider: 'static' }), /, whose configuration must list it$/);
  });
});
