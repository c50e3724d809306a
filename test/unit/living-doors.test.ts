import assert from 'node:assert/strict';
import { sourcesOf } from './product-sources.js';

const MODULES = [
  'shared',
  'packs',
  'engine',
  'http-api',
  'main-node',
  'shadow-node',
  'worker-node',
  'cli',
  'simulator',
];

interface Door {
  code: RegExp;
  /** Left out: MODULES. */
  modules?: readonly string[];
  files: readonly string[];
  instead: string;
}

/** Code that begins a living thing, and the only files that may have this code. They count the thing until it ends (shared/base/runtime/living.ts). */
const DOORS: readonly Door[] = [
  {
    code: /\.addEventListener\(/,
    modules: [...MODULES, 'bench'],
    files: ['shared/base/runtime/living.ts'],
    instead: 'listen to a signal by onAbort (shared/base/runtime/living.ts)',
  },
  {
    code: /AbortSignal\.(any|timeout)\(/,
    files: ['cli/background/start-all.ts', 'worker-node/fetching/mending.ts'],
    instead: 'a signal that follows others keeps listeners at them as long as they live: listen by onAbort',
  },
  {
    code: /import \{[^}]*\bopen\b[^}]*\} from 'node:fs\/promises'/,
    files: ['shared/base/files/counted-file.ts'],
    instead: 'open a file by openCounted (shared/base/files/counted-file.ts)',
  },
  {
    code: /new Client\(/,
    files: ['shared/transport/channel.ts'],
    instead: 'open a channel by openChannel (shared/transport/channel.ts)',
  },
  {
    code: /\bsocket\.(on|once)\(|\bserver\.(on|once)\(/,
    files: [
      'shared/transport/channel.ts',
      'shared/transport/server-port.ts',
      'shared/transport/admitted-sockets.ts',
      'shared/transport/refuser.ts',
      'main-node/enrolment/enrolment-door.ts',
      'http-api/start-http-api.ts',
      'http-api/http-server.ts',
      'shared/transport/tls-mismatch.ts',
      'cli/doctor/diagnose-peer.ts',
      'cli/doctor/probe-tls.ts',
      'engine/daemon/health-socket.ts',
      'cli/service/ask-health.ts',
    ],
    instead: 'listen to a socket or a server by onEvent (shared/base/runtime/living.ts)',
  },
];

describe('each object that must end', () => {
  for (const { code, modules = MODULES, files, instead } of DOORS) {
    it(`is begun by ${code.source} in ${files.join(', ')} alone`, () => {
      const beginners = sourcesOf(modules).filter(({ text }) => code.test(text));
      const others = beginners.map(({ path }) => path).filter((path) => !files.includes(path));
      assert.deepEqual(others, [], instead);
    });
  }
});
