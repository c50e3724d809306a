import { namespacesUnavailable } from './network-namespaces.js';
import { Saturday } from './saturday/film.js';

describe('one Saturday: machines pair, one reboots, one is updated, one is unplugged', function () {
  this.timeout(600_000);

  it('and the answers that run meanwhile equal, to the bit, those of one process', async function () {
    const reason = namespacesUnavailable();
    if (reason !== null) {
      console.log(`      skipped: ${reason}`);
      this.skip();
    }
    const shown: string[] = [];
    const film = await Saturday.start((line) => shown.push(line), new AbortController().signal);
    try {
      await film.run();
    } catch (thrown) {
      console.log(`${shown.join('\n')}\n${film.journals()}`);
      throw thrown;
    } finally {
      await film.end();
    }
  });
});
