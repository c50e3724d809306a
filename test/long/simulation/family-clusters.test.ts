import { familiesAnswer, isQuick } from '../../simulation/family-answers.js';

describe('a cluster with a model of each family answers as one process does, to the bit, in other set-ups:', () => {
  familiesAnswer((family, plan) => !isQuick(family, plan));
});
