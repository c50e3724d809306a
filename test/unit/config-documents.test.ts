import assert from 'node:assert/strict';
import { parseClusterConfig } from '../../shared/settings/load-cluster-config.js';

describe('a cluster.yaml of several documents', () => {
  it('is refused with words that say what to do', () => {
    assert.throws(() => parseClusterConfig('cluster: a\n---\ncluster: b\n', 'cluster.yaml'), {
      code: 'CONFIG_INVALID',
      message: /^cluster\.yaml:2:1: a second document begins after "---"; keep one/,
    });
  });
});
