import assert from 'node:assert/strict';
import { pageTitle, PAGE_ROUTES, type TitleFacts } from '../../dashboard/frame/page-title.js';

const FACTS: TitleFacts = { route: 'cluster', clusterName: 'home', problems: 0, isSilent: false, isLocked: false };

describe("the title of the page's tab", () => {
  it('names the view and the cluster in each view', () => {
    assert.deepEqual(
      PAGE_ROUTES.map((route) => pageTitle({ ...FACTS, route })),
      [
        'Cluster home · odmoe',
        'A token · home · odmoe',
        'Over time · home · odmoe',
        'Chat · home · odmoe',
        'Machines of home · odmoe',
      ],
    );
    assert.equal(pageTitle({ ...FACTS, clusterName: '' }), 'Cluster · odmoe');
  });

  it('begins with the number of problems, where there are some', () => {
    assert.equal(pageTitle({ ...FACTS, problems: 2 }), '(2) Cluster home · odmoe');
  });

  it('says that main is silent in place of problems, which may be over', () => {
    assert.equal(pageTitle({ ...FACTS, problems: 2, isSilent: true }), '(silent) Cluster home · odmoe');
  });

  it('names no cluster where a key is wanted', () => {
    assert.equal(pageTitle({ ...FACTS, problems: 2, isLocked: true }), 'Log in · odmoe');
  });
});
