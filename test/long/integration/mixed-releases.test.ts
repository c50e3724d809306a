import { NEWEST_PROTOCOL_VARIABLE } from '../../../engine/environment/node-environment.js';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { odmoeVersion } from '../../../shared/base/files/odmoe-version.js';
import { NEWEST_PROTOCOL } from '../../../shared/wire/limits.js';
import { type Release, testMixes } from '../../integration/harness/release-mixes.js';

/** Clusters with daemons of an earlier release: npm run test:releases. */
describe('a cluster with an authority, of this release and of one that speaks a newer protocol, too,', function () {
  this.timeout(240_000);
  testMixes('authority', () => ({ older: speaking(NEWEST_PROTOCOL), newer: speaking(NEWEST_PROTOCOL + 1) }));
});

function speaking(newestProtocol: number): Release {
  const environment = { [NEWEST_PROTOCOL_VARIABLE]: String(newestProtocol) };
  return { root: packageRoot(), environment, newestProtocol, release: odmoeVersion() };
}
