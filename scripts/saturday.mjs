// `node scripts/saturday.mjs`, as root: set-up, then a Saturday in network namespaces. Four boxes become a cluster and answer, one reboots, one is
// updated, one is unplugged, and the answers equal those of one process. Ends with status 1 where one does not. docs/saturday.md has a record.
import { afterSetUp } from './setup.mjs';
import { BENCH_MODULES, PRODUCT_MODULES, TEST_MODULES, buildTypeScript } from './build-typescript.mjs';

const say = (line) => process.stdout.write(`${line}\n`);

async function show() {
  const { namespacesUnavailable } = await import('../dist/test/long/integration/network-namespaces.js');
  const reason = namespacesUnavailable();
  if (reason !== null) throw new Error(`the boxes of the Saturday cannot be made: ${reason}`);
  const { Saturday } = await import('../dist/test/long/integration/saturday/film.js');
  const interrupted = new AbortController();
  process.once('SIGINT', () => interrupted.abort()).once('SIGTERM', () => interrupted.abort());
  const film = await Saturday.start(say, interrupted.signal);
  interrupted.signal.addEventListener('abort', () => film.end().then(() => process.exit(130)));
  try {
    await film.run();
  } catch (thrown) {
    if (!interrupted.signal.aborted) say(film.journals());
    throw thrown;
  } finally {
    await film.end();
  }
}

afterSetUp('start', () => {
  buildTypeScript([...PRODUCT_MODULES, ...BENCH_MODULES, ...TEST_MODULES], () => say('building TypeScript'));
  show().catch((thrown) => {
    process.stderr.write(`${thrown.message}\n`);
    process.exitCode = 1;
  });
});
