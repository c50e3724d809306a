import { familiesAnswer, isQuick } from '../../simulation/family-answers.js';

describe('a cluster with a model of each family answers as one process does, to the bit, set up in other ways', () => {
  familiesAnswer((family, plan) => !isQuick(family, plan));
});
