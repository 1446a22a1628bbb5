"use strict";
vyre.header();
