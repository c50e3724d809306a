import { familyFixtures, formatFixtures } from '../../integration/harness/test-models.js';
import { isQuick, modelsAnswer } from '../../simulation/family-answers.js';

describe('a cluster with a model of each family and format answers as one process does, to the bit, in other set-ups:', () => {
  modelsAnswer([...familyFixtures(), ...formatFixtures()], (model, plan) => !isQuick(model, plan));
});
