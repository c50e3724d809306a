import assert from 'node:assert/strict';
import { nativeDenseRoles } from '../../native/index.js';
import { DENSE_ROLES } from '../../shared/model/dense-roles.js';

describe('dense roles of the native core', () => {
  it('are those of the one table, in its order', () => {
    assert.deepEqual(Object.entries(nativeDenseRoles()), Object.entries(DENSE_ROLES));
  });
});
